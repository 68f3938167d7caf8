"""Writes a task's rows as Parquet files: one or more for each partition of the table. Runs in Spark's workers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import compute, parquet

from fencepost.spark_pipelines.tables.table import NewFile

FILE_COLUMNS = "path string, size bigint, rows bigint, partition map<string,string>, stats string"
"""The rows that tasks return, as Spark's DDL: the fields of NewFile."""
FILE_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("partition", pa.map_(pa.string(), pa.string())),
        ("stats", pa.string()),
    ]
)
FILE_BYTES = 256 << 20
"""A file is closed when it holds about this size of rows, before encoding and compression."""
OPEN_BYTES_MAX = 2 * FILE_BYTES
"""If the open files of a task hold more, the largest is closed: they are in memory until then."""
OPEN_FILES_MAX = 200
"""If the rows of a task fall into more partitions at once, the largest file is closed."""
_ROW = "fencepost row"
_STATS_TEXT_MAX = 32


class Place(Protocol):
    """Where a task's files go. It is sent to the tasks."""

    def create(self, name: str) -> tuple[str, Any]:
        """A new file: its path as the table names it, and a binary stream to write and close."""

    def delete(self, path: str) -> None:
        """Delete a file of this task."""


@dataclass(frozen=True)
class PartitionColumn:
    """One column by which a table is divided, or a part of its time."""

    source: str
    unit: str | None = None
    """"year", "month", "day" or "hour" of a timestamp or date, in UTC; None: the column's own values."""

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Equal values for the rows of one partition."""
        column = batch.column(self.source)
        return column if self.unit is None else compute.floor_temporal(column, unit=self.unit)


@dataclass
class _OpenFile:
    path: str
    stream: Any
    writer: parquet.ParquetWriter
    values: Sequence[Any]
    collected: list[Any]
    rows: int = 0
    size: int = 0
    """Of the rows, in bytes."""


@dataclass(frozen=True)
class WriteFiles:
    """Writes record batches into new files at `place`.

    With `keep_partition_columns` false the files do not hold them: Delta's log does. `stats` asks for Delta's column
    statistics.
    """

    place: Place
    schema: pa.Schema
    partitions: tuple[PartitionColumn, ...] = ()
    keep_partition_columns: bool = True
    stats: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all batches; yields one batch that describes the files. On an error the files are deleted."""
        work = _Files(self)
        try:
            for batch in batches:
                work.write(batch.cast(self.schema))
            found = work.close()
        except BaseException:
            work.abort()
            raise
        yield pa.RecordBatch.from_pylist(
            [vars(file) | {"partition": dict(file.partition)} for file in found], FILE_SCHEMA
        )


class _Files:
    """The files of one task."""

    def __init__(self, to: WriteFiles) -> None:
        self._to = to
        self._name = uuid.uuid4().hex
        names = {one.source for one in to.partitions} if not to.keep_partition_columns else set()
        self._columns = [name for name in to.schema.names if name not in names]
        self._schema = pa.schema([to.schema.field(name) for name in self._columns])
        self._open: dict[tuple[Any, ...], _OpenFile] = {}
        self._open_bytes = 0
        self._closed: list[NewFile] = []
        self._created: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        for key, rows in self._divided(batch):
            file = self._open.get(key)
            if file is None:
                file = self._open[key] = self._new(key)
            file.writer.write_batch(rows.select(self._columns))
            file.rows += rows.num_rows
            file.size += rows.nbytes
            self._open_bytes += rows.nbytes
            if file.size >= FILE_BYTES:
                self._finish(key)
            elif self._open_bytes > OPEN_BYTES_MAX or len(self._open) > OPEN_FILES_MAX:
                self._finish(max(self._open, key=lambda one: self._open[one].size))

    def close(self) -> list[NewFile]:
        while self._open:
            self._finish(next(iter(self._open)))
        return self._closed

    def abort(self) -> None:
        """Delete what this task wrote. What cannot be deleted stays behind as a file that no table holds."""
        for file in self._open.values():
            with suppress(Exception):
                file.writer.close()
                file.stream.close()
        for path in self._created:
            with suppress(Exception):
                self._to.place.delete(path)

    def _divided(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        if not self._to.partitions:
            yield (), batch
            return
        names = [f"key {number}" for number in range(len(self._to.partitions))]
        keys = [one.of(batch) for one in self._to.partitions]
        table = pa.table([*keys, pa.array(range(batch.num_rows), pa.int64())], [*names, _ROW])
        groups = table.group_by(names, use_threads=False).aggregate([(_ROW, "list")])
        values = zip(*(groups.column(name).to_pylist() for name in names), strict=True)
        for key, rows in zip(values, groups.column(f"{_ROW}_list"), strict=True):
            yield key, batch.take(rows.values)

    def _new(self, key: tuple[Any, ...]) -> _OpenFile:
        path, stream = self._to.place.create(f"part-{self._name}-{len(self._created):05d}.parquet")
        self._created.append(path)
        collected: list[Any] = []
        writer = parquet.ParquetWriter(
            stream,
            self._schema,
            compression="zstd",
            store_decimal_as_integer=True,  # up to 18 digits: Iceberg demands it, and Spark writes Delta so
            metadata_collector=collected,
        )
        return _OpenFile(path, stream, writer, key, collected)

    def _finish(self, key: tuple[Any, ...]) -> None:
        file = self._open.pop(key)
        self._open_bytes -= file.size
        file.writer.close()
        size = file.stream.tell()
        file.stream.close()
        partition: Mapping[str, str | None] = {}
        if not self._to.keep_partition_columns:
            pairs = zip(self._to.partitions, file.values, strict=True)
            partition = {one.source: partition_text(value) for one, value in pairs}
        else:
            check_bounds(file.collected[0], self._to.partitions)
        stats = _stats(file.collected[0]) if self._to.stats else ""
        self._closed.append(NewFile(file.path, size, file.rows, partition, stats))


def check_bounds(metadata: Any, partitions: Sequence[PartitionColumn]) -> None:
    """Raise ValueError if the bounds of a file's columns do not give its partition, as pyiceberg does it."""
    names = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    for one in partitions:
        for group in range(metadata.num_row_groups):
            found = metadata.row_group(group).column(names[one.source]).statistics
            if found is None or not (found.has_min_max or found.null_count == metadata.row_group(group).num_rows):
                raise ValueError(f"a value of {one.source} is too large for the table's partitions")


def partition_text(value: Any) -> str | None:
    """A partition value as Delta's log writes it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} cannot be a partition value")


def _stats(metadata: Any) -> str:
    """Delta's statistics of a file: the number of rows, and the bounds of the columns that readers filter by."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        if "." in name:
            continue
        chunks = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
        if not chunks or any(chunk is None or not chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        bounded = [chunk for chunk in chunks if chunk.has_min_max]
        if any(not chunk.has_min_max and chunk.num_values for chunk in chunks) or not bounded:
            continue
        try:
            bounds = _bounds(min(chunk.min for chunk in bounded), max(chunk.max for chunk in bounded))
        except OverflowError:
            continue  # Python has no time beyond the year 9999; a column without bounds is always read
        if bounds is not None:
            low[name], high[name] = bounds
    found = {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(found)


def _bounds(low: Any, high: Any) -> tuple[Any, Any] | None:
    """JSON values that are not above the lowest and not below the highest value; None for types without bounds here."""
    if isinstance(low, bool):
        return None
    if isinstance(low, int):
        return low, high
    if isinstance(low, datetime):
        # Delta's statistics have milliseconds, so a bound is moved outwards.
        return _milliseconds(low), _milliseconds(high + timedelta(microseconds=999))
    if isinstance(low, date):
        return low.isoformat(), high.isoformat()
    if isinstance(low, str) and max(len(low), len(high)) <= _STATS_TEXT_MAX:
        return low, high
    return None


def _milliseconds(at: datetime) -> str:
    if at.tzinfo is None:
        return at.isoformat(timespec="milliseconds")
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
