"""Checks a data directory, without trust in any of its files."""
