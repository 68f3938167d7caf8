"""An Apache Iceberg table, by the library pyiceberg: Spark needs no jar for it.

The marks are in the summary of each snapshot that the pipelines commit, so a rollback of the table takes them back; and
in a property of the table, where they stay when old snapshots are removed.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.spark_pipelines.errors import PipelineError
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
    missing_library,
    nullable,
    small_types,
)

if TYPE_CHECKING:
    import pyarrow as pa

MARKS = "fencepost.marks"
"""The property of snapshots and of the table: a JSON object of all marks, compressed if it is long."""
_LONG = 4096
_ZLIB = "zlib:"
"""Begins a compressed text. All summaries are in the table's metadata, which every commit writes again."""
_COMMIT = "fencepost.commit"
_FIRST = 1
"""The sequence number of a table's first snapshot. Tables of format version 1 have only 0."""
_ATTEMPTS, _BACKOFF_S = 10, 0.01
_PROMOTIONS = {
    ("int8", "int32"),
    ("int16", "int32"),
    ("int8", "int64"),
    ("int16", "int64"),
    ("int32", "int64"),
    ("float", "double"),
}
_TIME_UNITS = ("year", "month", "day", "hour")
_FUNCTION = re.compile(r"(\w+)\((\w+)\)")


def iceberg_table(
    name: str,
    *,
    catalog: str = "default",
    properties: Mapping[str, str] | None = None,
    partition_by: Sequence[str] = (),
    merge_schema: bool = False,
) -> Table:
    """An Iceberg table "namespace.table" of a catalog.

    `catalog` and `properties` are those of pyiceberg (`load_catalog`), which also takes them from its configuration
    file and from the environment. A table that does not exist is created at the first write, divided by `partition_by`:
    columns, or "year(column)", "month(column)", "day(column)" or "hour(column)". With `merge_schema` columns that the
    table does not have are added to it; without, they are refused. Raises MissingPartError without pyiceberg.
    """
    try:
        import pyiceberg.catalog  # noqa: F401
    except ImportError as error:
        raise missing_library("pyiceberg", error) from error
    if "." not in name:
        raise PipelineError(f"{name!r} is not the name of an Iceberg table: write it as NAMESPACE.TABLE")
    return _Iceberg(name, catalog, dict(properties or {}), tuple(partition_by), merge_schema)


@dataclass(frozen=True)
class _Place:
    """The data directory of the table, seen from a task."""

    location: str
    io_properties: Mapping[str, str]

    def create(self, name: str) -> tuple[str, Any]:
        path = f"{self.location}/{name}"
        return path, self._io().new_output(path).create()

    def delete(self, path: str) -> None:
        self._io().delete(path)

    def _io(self) -> Any:
        from pyiceberg.io import load_file_io

        return load_file_io(dict(self.io_properties), self.location)


@dataclass(frozen=True)
class _ReadFile:
    """Reads one file of the table as its own schema, without rows that were deleted."""

    metadata: Any
    schema: pa.Schema
    io_properties: Mapping[str, str]

    def __call__(self, item: Any) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io import load_file_io
        from pyiceberg.io.pyarrow import ArrowScan

        io = load_file_io(dict(self.io_properties), self.metadata.location)
        for batch in ArrowScan(self.metadata, io, self.metadata.schema(), AlwaysTrue()).to_record_batches([item]):
            yield batch.cast(self.schema)


@dataclass(frozen=True)
class _Iceberg:
    name: str
    _catalog_name: str
    _properties: dict[str, str]
    _partition_by: tuple[str, ...]
    _merge_schema: bool

    def marks(self, names: Iterable[str]) -> dict[str, int]:
        table = self._load()
        found = {} if table is None else _marks_of(table)
        return {name: found[name] for name in names if name in found}

    def write_task(self, schema: pa.Schema) -> WriteTask:
        from fencepost.spark_pipelines.tables.write_files import PartitionColumn, WriteFiles

        table = self._check_columns(self._load() or self._create(schema), schema)
        spec, columns = table.spec(), table.schema()
        partitions = []
        for one in spec.fields:
            transform, source = str(one.transform), columns.find_field(one.source_id)
            check_has(self.name, schema, source.name)
            if str(source.field_type) in ("float", "double"):
                raise PipelineError(f"{self.name} is divided by {source.name}, a {source.field_type}: NaN has no place")
            if transform != "identity" and transform not in _TIME_UNITS:
                raise PipelineError(
                    f"{self.name} is divided by {transform} of {source.name}: pyiceberg cannot tell a file's partition"
                    " then. Divide it by columns or by parts of a time"
                )
            partitions.append(PartitionColumn(source.name, transform if transform in _TIME_UNITS else None))
        place = _Place(f"{table.location().rstrip('/')}/data", dict(table.io.properties))
        required = {one.name for one in columns.fields if one.required}
        return WriteFiles(place, as_written(schema, required), tuple(partitions))

    def append(self, files: Sequence[NewFile], marks: Marks, seen: SeenMarks) -> None:
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import AssertTableUUID

        commit_id = uuid.uuid4().hex
        for attempt in range(_ATTEMPTS):
            table = self._loaded()
            if attempt and _has_commit(table, commit_id):
                return  # the commit was done, and only its answer was lost
            known = _marks_of(table)
            check_seen(self.name, known, seen)
            if table.location().startswith(("/", "file:")):
                check_files_are_here("/", [_local(file) for file in files])
            merged = {**known, **marks}
            kept = {"sequence": table.metadata.last_sequence_number + 1, "marks": merged}
            commit = table.transaction()
            self._add(commit, files, {MARKS: _packed(merged), _COMMIT: commit_id})
            commit.set_properties({MARKS: _packed(kept)})
            # Not `commit_transaction`: after a conflict it commits again without a look at the marks. And without
            # repetitions it deletes the manifests of a commit that was done, if only the answer was lost.
            requirements = (*commit._requirements, AssertTableUUID(uuid=table.metadata.table_uuid))
            try:
                table.catalog.commit_table(table, requirements, commit._updates)
                return
            except CommitFailedException:
                time.sleep(random.random() * _BACKOFF_S * 2**attempt)
        if not _has_commit(self._loaded(), commit_id):
            raise PipelineError(
                f"others committed to {self.name} at each of {_ATTEMPTS} attempts, so this batch was not committed: try"
                " again"
            )

    def _add(self, commit: Any, files: Sequence[NewFile], summary: dict[str, str]) -> None:
        try:
            commit.add_files([one.path for one in files], summary, check_duplicate_files=False)
        except OverflowError as error:
            raise PipelineError(
                f"{self.name} cannot hold a timestamp of the rows, because pyiceberg reads times up to the year 9999"
                f" ({error}): leave these rows out, or write a Delta table"
            ) from error

    def discard(self, files: Sequence[NewFile]) -> None:
        table = self._loaded()
        for file in files:
            with suppress(OSError):  # Iceberg's removal of orphan files deletes what stays behind
                table.io.delete(file.path)

    def contents(self, names: Iterable[str] = ()) -> Contents:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        table = self._loaded()
        known = _marks_of(table)
        schema = small_types(schema_to_pyarrow(table.schema(), include_field_ids=False))
        read = _ReadFile(table.metadata, schema, dict(table.io.properties))
        marks = {name: known[name] for name in names if name in known}
        return Contents(marks, schema, list(table.scan().plan_files()), read)

    def _catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        try:
            return load_catalog(self._catalog_name, **self._properties)
        except Exception as error:  # each kind of catalog has errors of its own
            raise PipelineError(
                f"catalog {self._catalog_name} cannot be opened: {first_line(error)}. Give its settings, such as uri,"
                " as `properties`, with --table-option NAME=VALUE, or in pyiceberg's configuration file"
            ) from error

    def _loaded(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        catalog = self._catalog()
        try:
            return catalog.load_table(self.name)
        except NoSuchTableError:
            raise
        except Exception as error:  # each kind of catalog has errors of its own
            raise PipelineError(f"{self.name} cannot be loaded from its catalog: {first_line(error)}") from error

    def _load(self) -> Any | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._loaded()
        except NoSuchTableError:
            return None

    def _create(self, schema: pa.Schema) -> Any:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        for wanted in self._partition_by:
            found = _FUNCTION.fullmatch(wanted)
            column = found[2] if found else wanted
            if column not in schema.names:
                raise PipelineError(
                    f"the rows have no column {column} to divide {self.name} by; they have {', '.join(schema.names)}"
                )
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        try:
            with (
                catalog.create_table_transaction(self.name, nullable(schema)) as creation,
                creation.update_spec() as spec,
            ):
                for wanted in self._partition_by:
                    spec.add_field(*_partition_field(wanted))
        except (TableAlreadyExistsError, CommitFailedException):
            pass  # another writer was quicker
        return self._loaded()

    def _check_columns(self, table: Any, schema: pa.Schema) -> Any:
        """The table with all columns of the rows. Raises PipelineError if it may not or cannot get them."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        there = schema_to_pyarrow(table.schema(), include_field_ids=False)
        self._check_names(table, schema)
        new = check_columns(self.name, schema, there, _fits, may_add=self._merge_schema)
        if not new:
            return table
        with table.update_schema() as update:
            update.union_by_name(nullable(new))
        return self._loaded()

    def _check_names(self, table: Any, schema: pa.Schema) -> None:
        """Raise PipelineError if a column's name belonged to another column before.

        Files of an export name their columns and have no ids, so rows of then would get the values of the new column.
        """
        now = {one.name: one.field_id for one in table.schema().fields}
        for old in table.schemas().values():
            for one in old.fields:
                known = one.name in now or one.name in schema.names
                if known and now.get(one.name) != one.field_id:
                    raise PipelineError(
                        f"{self.name} had another column {one.name} before, which was renamed or dropped: its rows"
                        " would get the values of the new one. Take another name for the column"
                    )


def _marks_of(table: Any) -> dict[str, int]:
    """The marks of the newest snapshot that has any; else those of the table's property.

    The property counts only where the snapshots with marks may have been removed. Raises PipelineError if they were
    rolled back, and removed, and nothing tells which rows are left.
    """
    snapshot = oldest = table.current_snapshot()
    while snapshot is not None:
        if text := _summary(snapshot).get(MARKS):
            return dict(_unpacked(text))
        oldest, parent = snapshot, snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    if oldest is None or MARKS not in table.properties:
        return {}
    kept = _unpacked(table.properties[MARKS])
    if kept["sequence"] < oldest.sequence_number or oldest.sequence_number == 0:
        return dict(kept["marks"])
    if oldest.sequence_number == _FIRST:
        return {}  # no snapshot was removed: those with marks were rolled back
    raise PipelineError(
        f"{'.'.join(table.name())} was rolled back behind the last commit of fencepost, and old snapshots were removed:"
        " nothing tells which rows it holds. Write another table"
    )


def _packed(tree: Mapping[str, Any]) -> str:
    text = json.dumps(tree, sort_keys=True)
    if len(text) <= _LONG:
        return text
    return _ZLIB + base64.b64encode(zlib.compress(text.encode())).decode()


def _unpacked(text: str) -> Any:
    if text.startswith(_ZLIB):
        text = zlib.decompress(base64.b64decode(text.removeprefix(_ZLIB))).decode()
    return json.loads(text)


def _has_commit(table: Any, commit_id: str) -> bool:
    return any(_summary(one).get(_COMMIT) == commit_id for one in table.snapshots())


def _summary(snapshot: Any) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _partition_field(text: str) -> tuple[str, Any, str]:
    """Column, transform and name of a partition field. Raises PipelineError."""
    from pyiceberg.transforms import IdentityTransform, parse_transform

    found = _FUNCTION.fullmatch(text)
    if found is None:
        return text, IdentityTransform(), text
    if found[1] not in _TIME_UNITS:
        raise PipelineError(
            f"{text}: an Iceberg table is divided here by columns and by {', '.join(_TIME_UNITS)} of a column"
        )
    return found[2], parse_transform(found[1]), f"{found[2]}_{found[1]}"


def _fits(rows: pa.DataType, table: pa.DataType) -> bool:
    """Whether a file with values of the first type can be read as the second one, by Iceberg's promotions."""
    one, other = (re.sub(r"large_| not null|(?<=tz=)[^\]]+", "", str(kind)) for kind in (rows, table))
    return one == other or (one, other) in _PROMOTIONS


def _local(file: NewFile) -> NewFile:
    return NewFile(re.sub("^file:/*", "/", file.path).lstrip(os.sep), file.size, file.rows, file.partition, file.stats)


__all__ = ["iceberg_table"]
