"""Registers the data source "fencepost" with Spark, which imports every module whose name begins with pyspark_."""

from fencepost.spark_connector.data_source import FencepostDataSource as DefaultSource

__all__ = ["DefaultSource"]
