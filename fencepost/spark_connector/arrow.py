"""The source's schema in Arrow's types, and record columns turned into the batches that Spark takes."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.columns import RecordColumns, headers_type
from fencepost.protocol.topics import TopicPartition


def arrow_schema(columns: tuple[str, ...]) -> Any:
    """The Arrow schema that Spark demands of the first batch: times are microseconds in UTC."""
    import pyarrow as pa

    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": headers_type(),
    }
    return pa.schema([(name, types[name]) for name in columns])


def fields_of(columns: tuple[str, ...]) -> frozenset[str]:
    """What has to be decoded out of the records for these columns."""
    return frozenset({"key", "value", "headers"}.intersection(columns))


def spark_batch(records: RecordColumns, tp: TopicPartition, columns: tuple[str, ...], schema: Any) -> Any:
    """The records of one partition as a pyarrow RecordBatch of `schema`, which is `arrow_schema(columns)`."""
    import pyarrow as pa

    count = len(records)

    def column(name: str) -> Any:
        match name:
            case "key":
                return records.key
            case "value":
                return records.value
            case "headers":
                return records.headers
            case "topic":
                return pa.repeat(pa.scalar(tp.topic, pa.string()), count)
            case "partition":
                return pa.repeat(pa.scalar(tp.partition, pa.int32()), count)
            case "offset":
                return pa.array(records.offset)
            case "timestamp":
                return pa.array(records.timestamp_ms * 1000).cast(pa.timestamp("us", tz="UTC"))
            case "timestampType":
                return pa.array(records.timestamp_type)
        raise AssertionError(f"no column {name}")

    return pa.RecordBatch.from_arrays([column(name) for name in columns], schema=schema)
