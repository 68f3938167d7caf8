"""Spark's Python data source for fencepost and Kafka."""

from typing import TYPE_CHECKING, Any

if __name__ != "fencepost.spark_connector":
    raise ImportError("import fencepost.spark_connector: the folder spark_connector is a link to it")

from fencepost.spark_connector.sink.function import write_exactly_once

if TYPE_CHECKING:
    from fencepost.spark_connector.query_metrics import QueryMetrics as QueryMetrics

__all__ = ["QueryMetrics", "write_exactly_once"]


def __getattr__(name: str) -> Any:
    """Import the metrics on first use: workers need none."""
    if name != "QueryMetrics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fencepost.spark_connector.query_metrics import QueryMetrics

    return QueryMetrics
