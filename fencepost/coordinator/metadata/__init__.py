"""The cluster's metadata: topics, settings, features and producer-id blocks."""
