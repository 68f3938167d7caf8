"""Records that cannot be read go to a topic of their own, in the transaction of those that can."""

from typing import Any

from fencepost.spark_connector.schemas.spark_types import column_of

HEADER_PREFIX = "fencepost.error."
"""In front of the names of a dead letter's headers: reason, schema.id, topic, partition, offset."""
_HEADERS = "array<struct<key:string,value:binary>>"


def route_dead_letters(frame: Any, *, read: str, value: Any, topic: str, dead_letter_topic: str) -> Any:
    """One DataFrame for the sink, with columns key, value, topic and headers: a row for each row of `frame`.

    - frame: rows of the source (key, value, topic, partition, offset), with a column `read` that
      `from_registry(..., on_error="keep")` made. If it has a column timestamp, records keep their times; if it has
      headers, they keep these, too, but for those of a dead letter that is read again
    - value: the column to write for records that were read, or its name
    - topic: where they go. The others go to `dead_letter_topic`, with the bytes that they had, and with headers that
      name reason, schema id, topic, partition and offset

    Both topics are written in one transaction of the sink, so each record is in one of them, once.

    Raises ValueError if `read` has no errors.
    """
    from pyspark.sql import functions as F

    if "error" not in getattr(frame.select(read).schema[0].dataType, "names", ()):
        raise ValueError(f'column {read} has no errors: make it with from_registry(..., on_error="keep")')
    error, value = F.col(read)["error"], column_of(value)
    readable = error.isNull()
    facts = {
        "reason": error["reason"],
        "schema.id": error["schema_id"].cast("string"),
        "topic": F.col("topic"),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
    }
    headers = F.array(
        *(
            F.struct(F.lit(HEADER_PREFIX + name).alias("key"), fact.cast("binary").alias("value"))
            for name, fact in facts.items()
        )
    )
    known = F.filter(headers, lambda one: one["value"].isNotNull())
    columns = frame.columns
    own = F.lit(None).cast(_HEADERS)
    if "headers" in columns:  # without those of an earlier pass, which would grow with each
        own = F.filter("headers", lambda one: ~one["key"].startswith(HEADER_PREFIX))
    dead = F.concat(F.coalesce(own, F.array().cast(_HEADERS)), known)
    return frame.select(
        F.col("key"),
        F.when(readable, value).otherwise(F.col("value")).alias("value"),
        F.when(readable, F.lit(topic)).otherwise(F.lit(dead_letter_topic)).alias("topic"),
        F.when(readable, own).otherwise(dead).alias("headers"),
        *([F.col("timestamp")] if "timestamp" in columns else []),
    )
