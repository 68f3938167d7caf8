"""Exactly-once writes for programs that use `foreachBatch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_QUERY_ID = "sql.streaming.queryId"


def write_exactly_once(
    df: Any, batch_id: int, *, transactional_id: str, options: Mapping[str, str], query_id: str | None = None
) -> None:
    """Write a DataFrame once for each (query, batch), even if Spark calls `foreachBatch` again with the same batch.

    `transactional_id` identifies this writer. It must stay the same after a restart and differ between the sinks of a
    query. `query_id` is by default Spark's id of the query, which belongs to its checkpoint. Outside of `foreachBatch`,
    and on Spark Connect, it is required: a name of your own, which changes when the checkpoint does. `options` are the
    options of the sink. The DataFrame needs a column `value` (see docs/spark.md).

    Raises ValueError if the query's id is unknown. Errors of the sink are raised as Spark's PythonException.
    """
    query_id = query_id or query_id_of(df)
    writer = df.write.format("fencepost").mode("append").options(**options)
    writer.options(**{"kafka.transactional.id": transactional_id, "queryId": query_id, "batchId": str(batch_id)}).save()


def query_id_of(frame: Any) -> str:
    """The id of the query that runs in this thread. Spark Connect does not send it to the function of foreachBatch.

    Raises ValueError if there is none.
    """
    context = getattr(frame.sparkSession, "sparkContext", None)
    found: str | None = None if context is None else context.getLocalProperty(_QUERY_ID)
    if not found:
        raise ValueError(
            "the query's id is unknown outside of foreachBatch and on Spark Connect: set query_id to a name that stays"
            " the same as long as the query keeps its checkpoint"
        )
    return found
