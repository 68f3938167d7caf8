"""The source's schema in Arrow's types, and the conversion of record columns to Arrow batches."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.column_types import RecordColumns, arrow_numbers, headers_type
from fencepost.protocol.topics import TopicPartition
from fencepost.protocol.varints import LONG_MAX

_MILLISECONDS_MAX = LONG_MAX // 1000
"""Spark's timestamps are microseconds: a time beyond their range is null."""


def arrow_schema(columns: tuple[str, ...]) -> Any:
    """The Arrow schema that Spark requires of the first batch. Times are microseconds in UTC."""
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
    return frozenset({"key", "value", "headers"}.intersection(columns))


class BatchMaker:
    """Makes the Arrow batches of one partition, with `columns` in the given order and the schema of `arrow_schema`.

    Topic and partition are the same in every row. Their columns are slices of the longest one made so far.
    """

    def __init__(self, tp: TopicPartition, columns: tuple[str, ...]) -> None:
        self.schema = arrow_schema(columns)
        self._tp = tp
        self._columns = columns
        self._same: dict[str, Any] = {}

    def batch(self, records: RecordColumns) -> Any:
        import pyarrow as pa

        return pa.RecordBatch.from_arrays([self._column(name, records) for name in self._columns], schema=self.schema)

    def _column(self, name: str, records: RecordColumns) -> Any:
        match name:
            case "key":
                return records.key
            case "value":
                return records.value
            case "headers":
                return records.headers
            case "topic" | "partition":
                return self._repeated(name, len(records))
            case "offset":
                return arrow_numbers(records.offset, self.schema.field(name).type)
            case "timestamp":
                times = records.timestamp_ms
                known = (times >= -_MILLISECONDS_MAX) & (times <= _MILLISECONDS_MAX)
                return arrow_numbers(times * 1000, self.schema.field(name).type, known)
            case "timestampType":
                return arrow_numbers(records.timestamp_type, self.schema.field(name).type)
        raise AssertionError(f"no column {name}")

    def _repeated(self, name: str, count: int) -> Any:
        found = self._same.get(name)
        if found is None or len(found) < count:
            kind = self.schema.field(name).type
            value = self._tp.topic if name == "topic" else self._tp.partition
            found = self._same[name] = _texts(value, count) if isinstance(value, str) else _numbers(value, count, kind)
        return found.slice(0, count)


def _texts(text: str, count: int) -> Any:
    # Not pa.repeat: it imports pandas first. See `arrow_numbers`.
    import numpy as np
    import pyarrow as pa

    data = text.encode()
    bounds = np.arange(count + 1, dtype=np.int32) * len(data)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data * count)])


def _numbers(number: int, count: int, kind: Any) -> Any:
    import numpy as np

    return arrow_numbers(np.full(count, number, np.int32), kind)
