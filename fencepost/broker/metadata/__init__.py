"""The cluster's metadata as files and as answers."""
