"""The broker inside a test."""
