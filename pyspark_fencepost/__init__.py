"""Lets Spark find the data source "fencepost" by itself: it looks into every module whose name begins with pyspark_."""

from fencepost.spark_connector.data_source import FencepostDataSource as DefaultSource

__all__ = ["DefaultSource"]
