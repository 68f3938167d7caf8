"""Spark's Python data source for fencepost and Kafka."""

from fencepost.spark_connector.sink_function import write_exactly_once

__all__ = ["write_exactly_once"]
