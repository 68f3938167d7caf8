"""Spark's Python data source for fencepost and Kafka."""
