"""Exactly once for programs that write their micro-batches themselves, in `foreachBatch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_QUERY_ID = "sql.streaming.queryId"


def write_exactly_once(
    df: Any, batch_id: int, *, transactional_id: str, options: Mapping[str, str], query_id: str | None = None
) -> None:
    """Write a frame once for each (query, batch), however often `foreachBatch` is called with it.

    `transactional_id` names this writer: the same after a restart, and another for each sink of a query. `query_id`
    is Spark's own, which lives as long as the checkpoint; give one where the function is called outside of
    `foreachBatch`. `options` are those of the sink. The frame needs a column `value` (see docs/spark.md). Raises
    ValueError where Spark does not tell the query's id; what the sink raises comes as Spark's PythonException.
    """
    if query_id is None:
        query_id = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not query_id:
        raise ValueError("which query is this? outside of foreachBatch, give query_id")
    writer = df.write.format("fencepost").mode("append").options(**options)
    writer.options(**{"kafka.transactional.id": transactional_id, "queryId": query_id, "batchId": str(batch_id)}).save()
