"""Optimizations for the Python workers that Spark reuses."""
