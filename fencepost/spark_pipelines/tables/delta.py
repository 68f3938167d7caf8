"""A Delta Lake table, by the library deltalake: Spark needs no jar for it.

A mark is a `txn` action of Delta's log: it is committed with the files, stays in checkpoints, and two commits with one
application id are in conflict.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fencepost.spark_pipelines.errors import PipelineError
from fencepost.spark_pipelines.tables.delta_marks import marks_in_log
from fencepost.spark_pipelines.tables.table import (
    Contents,
    Marks,
    NewFile,
    SeenMarks,
    Table,
    WriteTask,
    as_written,
    check_columns,
    check_files_are_here,
    check_has,
    check_seen,
    first_line,
    is_local,
    missing_library,
    nullable,
    small_types,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_PARTITION_TYPES = ("string", "integer", "long", "short", "byte", "boolean", "date")
_EXPIRY = "delta.setTransactionRetentionDuration"
"""With it a clean-up forgets the marks, and an export would begin again."""
_WRITTEN_FEATURES = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
}
"""The features with which deltalake commits files; it refuses others only at the commit, with all files written."""
_COLUMN_RULES = ("delta.generationExpression", "delta.identity", "delta.invariants")
_ATTEMPTS = 10


def delta_table(
    location: str | Path,
    *,
    storage_options: Mapping[str, str] | None = None,
    partition_by: Sequence[str] = (),
    merge_schema: bool = False,
) -> Table:
    """A Delta table in a directory or an object store, such as "s3://bucket/table".

    `storage_options` are those of deltalake (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ...), which it also takes from the
    environment. A table that does not exist is created at the first write, divided by the columns of `partition_by`.
    With `merge_schema` columns that the table does not have are added to it; without, they are refused. Raises
    MissingPartError without deltalake.
    """
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise missing_library("deltalake", error) from error
    place = str(location)
    if place.startswith("file://"):
        place = unquote(place.removeprefix("file://"))
    if is_local(place):
        place = os.path.abspath(place)
    return _Delta(place, dict(storage_options or {}), tuple(partition_by), merge_schema)


@dataclass(frozen=True)
class _Place:
    """The directory of the table, seen from a task."""

    root: str
    storage_options: Mapping[str, str]

    def create(self, name: str) -> tuple[str, Any]:
        if is_local(self.root):
            return name, _Synced(os.path.join(self.root, name))
        return name, self._files().open_output_stream(name)

    def delete(self, path: str) -> None:
        if is_local(self.root):
            os.unlink(os.path.join(self.root, path))
        else:
            self._files().delete_file(path)

    def open(self, path: str) -> Any:
        """A file of the table, to read."""
        if is_local(self.root):
            return open(path if os.path.isabs(path) else os.path.join(self.root, path), "rb")
        return self._files().open_input_file(path)

    def file_system(self) -> Any:
        """The table's directory as an Arrow file system, local or not."""
        from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

        return SubTreeFileSystem(self.root, LocalFileSystem()) if is_local(self.root) else self._files()

    def _files(self) -> Any:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.root, dict(self.storage_options)))


class _Synced:
    """A new local file that is on the disk when it is closed: the log must not name a file that a power cut takes."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "xb")  # noqa: SIM115 - `close` closes it
        self.write, self.flush, self.tell, self.closed = self._file.write, self._file.flush, self._file.tell, False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


@dataclass(frozen=True)
class _ReadFile:
    """Reads one file of the table: columns by name, and the partition values that the log holds."""

    place: _Place
    schema: pa.Schema

    def __call__(self, item: tuple[str, dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyarrow import parquet

        path, values = item
        with self.place.open(unquote(path)) as stream:
            file = parquet.ParquetFile(stream)
            there = set(file.schema_arrow.names)
            for batch in file.iter_batches(columns=[name for name in self.schema.names if name in there]):
                columns = [
                    batch.column(one.name).cast(one.type)
                    if one.name in there
                    else pa.array([values.get(one.name)], one.type).take(pa.array([0] * batch.num_rows, pa.int64()))
                    for one in self.schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass
class _Delta:
    name: str
    _storage_options: dict[str, str]
    _partition_by: tuple[str, ...]
    _merge_schema: bool
    _layout: str = ""
    """Columns and partitions of the table for which files were written."""

    def marks(self, names: Iterable[str]) -> dict[str, int]:
        table = self._load()
        if table is None:
            return {}
        return self._marks_of(table, names)

    def write_task(self, schema: pa.Schema) -> WriteTask:
        from deltalake import DeltaTable, Schema

        from fencepost.spark_pipelines.tables.write_files import PartitionColumn, WriteFiles

        try:
            wanted = Schema.from_arrow(nullable(schema))
        except Exception as error:  # deltalake raises a plain Exception here
            raise PipelineError(f"Delta Lake cannot hold these columns: {first_line(error)}") from error
        table = self._load()
        if table is None:
            self._check_partitions(wanted, self._partition_by)
            if is_local(self.name):
                os.makedirs(self.name, exist_ok=True)
            DeltaTable.create(
                self.name,
                wanted,
                mode="ignore",
                partition_by=list(self._partition_by),
                storage_options=self._storage_options or None,
            )
            table = self._loaded()
        self._check_rules(table)
        self._check_columns(table, wanted)
        required = {one.name for one in table.schema().fields if not one.nullable}
        divided_by = list(table.metadata().partition_columns)
        if self._partition_by and list(self._partition_by) != divided_by:
            raise PipelineError(
                f"{self.name} is divided by {', '.join(divided_by) or 'no column'}, not by"
                f" {', '.join(self._partition_by)}: leave partition_by out, or write another table"
            )
        for column in divided_by:
            check_has(self.name, schema, column)
        self._layout = _layout_of(table)
        partitions = tuple(PartitionColumn(column) for column in divided_by)
        place = _Place(self.name, self._storage_options)
        return WriteFiles(place, as_written(schema, required), partitions, keep_partition_columns=False, stats=True)

    def append(self, files: Sequence[NewFile], marks: Marks, seen: SeenMarks) -> None:
        import pyarrow as pa
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        if is_local(self.name):
            check_files_are_here(self.name, files)
        table = self._loaded()
        check_seen(self.name, self._marks_of(table, seen), seen)
        if files and _layout_of(table) != self._layout:
            raise PipelineError(f"the columns of {self.name} were changed while a batch was written: start again")
        now = int(time.time() * 1000)
        added: list[Any] = [AddAction(one.path, one.size, dict(one.partition), now, True, one.stats) for one in files]
        properties = CommitProperties(
            custom_metadata={"fencepost": dict(marks)},
            max_commit_retries=_ATTEMPTS,
            app_transactions=[Transaction(name, mark) for name, mark in marks.items()],
        )
        try:
            table.create_write_transaction(added, "append", table.schema(), commit_properties=properties)
        except CommitFailedError as error:
            # A store may repeat a request whose answer was lost, and then this commit is in conflict with itself.
            table = self._loaded()
            if files and files[0].path in pa.table(table.get_add_actions()).column("path").to_pylist():
                return
            check_seen(self.name, self._marks_of(table, seen), seen)
            raise PipelineError(f"the commit to {self.name} failed: {first_line(error)}") from error

    def discard(self, files: Sequence[NewFile]) -> None:
        place = _Place(self.name, self._storage_options)
        for file in files:
            with suppress(OSError):  # `vacuum` deletes what stays behind
                place.delete(file.path)

    def contents(self, names: Iterable[str] = ()) -> Contents:
        import pyarrow as pa

        table = self._loaded()
        protocol = table.protocol()
        features = set(protocol.reader_features or ()) - {"timestampNtz"}
        if protocol.min_reader_version > 3 or protocol.min_reader_version == 2 or features:
            raise PipelineError(
                f"{self.name} uses features of Delta Lake that are not read here"
                f" ({', '.join(sorted(features)) or 'column mapping'}): read it with Delta's own Spark package"
            )
        schema = small_types(pa.schema(table.schema().to_arrow()))
        actions = pa.table(table.get_add_actions()).to_pylist()
        items = [
            (action["path"], dict(action.get("partition") or action.get("partition_values") or {}))
            for action in actions
        ]
        read = _ReadFile(_Place(self.name, self._storage_options), schema)
        return Contents(self._marks_of(table, names), schema, items, read)

    def _marks_of(self, table: DeltaTable, names: Iterable[str]) -> dict[str, int]:
        names = list(names)
        found = marks_in_log(_Place(self.name, self._storage_options).file_system(), table.version(), names)
        if found is None:  # deltalake reads every form of the log, but all of it again for each name
            versions = {name: table.transaction_version(name) for name in names}
            found = {name: version for name, version in versions.items() if version is not None}
        return found

    def _load(self) -> DeltaTable | None:
        from deltalake.exceptions import TableNotFoundError

        try:
            return self._loaded()
        except TableNotFoundError:
            return None

    def _loaded(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return DeltaTable(self.name, storage_options=self._storage_options or None)
        except TableNotFoundError:
            raise
        except (DeltaError, OSError) as error:
            raise PipelineError(f"{self.name} cannot be opened as a Delta table: {first_line(error)}") from error

    def _check_partitions(self, wanted: Any, columns: Sequence[str]) -> None:
        types = {one.name: one.type for one in wanted.fields}
        for column in columns:
            if column not in types:
                raise PipelineError(
                    f"the rows have no column {column} to divide {self.name} by; they have {', '.join(types)}. For a"
                    " part of a time select a column first, such as `date(timestamp) AS day`"
                )
            if getattr(types[column], "type", None) not in _PARTITION_TYPES:
                raise PipelineError(
                    f"a Delta table is not divided by column {column} here: its type is {types[column]}"
                )

    def _check_rules(self, table: DeltaTable) -> None:
        """Raise PipelineError if the table has rules for its rows or files that these files would break in silence."""
        settings = table.metadata().configuration
        rules = [name for name in settings if name.startswith("delta.constraints.") or name == _EXPIRY]
        rules += sorted(set(table.protocol().writer_features or ()) - _WRITTEN_FEATURES)
        if settings.get("delta.columnMapping.mode", "none") != "none":
            rules.append("delta.columnMapping.mode")
        for field in table.schema().fields:
            rules += [f"{name} of {field.name}" for name in field.metadata if name.startswith(_COLUMN_RULES)]
        if rules:
            raise PipelineError(
                f"{self.name} has {', '.join(rules)}, which an export cannot obey: write another table, or write with"
                " Delta's own Spark package"
            )

    def _check_columns(self, table: DeltaTable, wanted: Any) -> None:
        """Raise PipelineError if the table cannot hold the columns; add those that are missing if it may."""
        import pyarrow as pa

        there = small_types(pa.schema(table.schema().to_arrow()))
        new = check_columns(self.name, small_types(pa.schema(wanted.to_arrow())), there, eq, may_add=self._merge_schema)
        if new:
            names = {one.name for one in new}
            table.alter.add_columns([one for one in wanted.fields if one.name in names])


def _layout_of(table: DeltaTable) -> str:
    return f"{table.schema().to_json()} {table.metadata().partition_columns}"


__all__ = ["delta_table"]
