"""Spark's readers: planning on the driver, reading in tasks."""
