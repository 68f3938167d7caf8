"""Spark's Python data source for fencepost and Kafka."""

from fencepost.spark_connector.sink.function import write_exactly_once

__all__ = ["write_exactly_once"]
