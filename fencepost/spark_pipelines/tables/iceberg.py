"""An Apache Iceberg table, by the library pyiceberg: Spark needs no jar for it.

The marks are in the summary of each snapshot that the pipelines commit, so they go back if somebody rolls the table
back; and in a property of the table, where they stay when old snapshots are removed.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.spark_pipelines.errors import PipelineError
from fencepost.spark_pipelines.tables.table import (
    Marks,
    NewFile,
    ReadTask,
    Table,
    WriteTask,
    as_written,
    check_files_are_here,
    check_seen,
    missing_library,
    nullable,
    raced,
)

if TYPE_CHECKING:
    import pyarrow as pa

MARKS = "fencepost.marks"
"""The property of snapshots and of the table: a JSON object of all marks."""
_COMMIT = "fencepost.commit"
_ATTEMPTS = 10
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
    io_properties: Mapping[str, str]

    def __call__(self, item: Any) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io import load_file_io
        from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

        schema = self.metadata.schema()
        io = load_file_io(dict(self.io_properties), self.metadata.location)
        arrow = schema_to_pyarrow(schema, include_field_ids=False)
        for batch in ArrowScan(self.metadata, io, schema, AlwaysTrue()).to_record_batches([item]):
            yield batch.cast(arrow)


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
            if transform != "identity" and transform not in _TIME_UNITS:
                raise PipelineError(
                    f"{self.name} is divided by {transform} of {source.name}: pyiceberg cannot tell a file's partition"
                    " then. Divide it by columns or by parts of a time"
                )
            partitions.append(PartitionColumn(source.name, transform if transform in _TIME_UNITS else None))
        place = _Place(f"{table.location().rstrip('/')}/data", dict(table.io.properties))
        required = {one.name for one in columns.fields if one.required}
        return WriteFiles(place, as_written(schema, required), tuple(partitions))

    def append(self, files: Sequence[NewFile], marks: Marks, seen: Marks) -> None:
        from pyiceberg.exceptions import CommitFailedException

        error: Exception | None = None
        commit_id = uuid.uuid4().hex
        for _ in range(_ATTEMPTS):
            table = self._loaded()
            if error is not None and any(_summary(one).get(_COMMIT) == commit_id for one in table.snapshots()):
                return  # the commit was done, and only its answer was lost
            check_seen(self.name, self.marks([*marks, *seen]), seen)
            if table.location().startswith(("/", "file:")):
                check_files_are_here("/", [_local(file) for file in files])
            # pyiceberg repeats a commit after a conflict without asking what the other writer committed.
            once = {**table.metadata.properties, "commit.retry.num-retries": "0"}
            table.metadata = table.metadata.model_copy(update={"properties": once})
            text = json.dumps({**_marks_of(table), **marks}, sort_keys=True)
            try:
                with table.transaction() as commit:
                    commit.add_files(
                        [one.path for one in files], {MARKS: text, _COMMIT: commit_id}, check_duplicate_files=False
                    )
                    commit.set_properties({MARKS: text})
                return
            except CommitFailedException as failed:
                error = failed
        raise raced(self.name, f"its snapshots at each of {_ATTEMPTS} attempts ({error})") from error

    def discard(self, files: Sequence[NewFile]) -> None:
        table = self._loaded()
        for file in files:
            with suppress(OSError):  # Iceberg's removal of orphan files deletes what stays behind
                table.io.delete(file.path)

    def read_tasks(self) -> tuple[pa.Schema, list[Any], ReadTask]:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        table = self._loaded()
        schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
        return schema, list(table.scan().plan_files()), _ReadFile(table.metadata, dict(table.io.properties))

    def _catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog(self._catalog_name, **self._properties)

    def _loaded(self) -> Any:
        return self._catalog().load_table(self.name)

    def _load(self) -> Any | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._loaded()
        except NoSuchTableError:
            return None

    def _create(self, schema: pa.Schema) -> Any:
        from pyiceberg.exceptions import TableAlreadyExistsError

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
        except TableAlreadyExistsError:
            pass  # another writer was quicker
        return self._loaded()

    def _check_columns(self, table: Any, schema: pa.Schema) -> Any:
        """The table with all columns of the rows. Raises PipelineError if it may not or cannot get them."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        there = {one.name: one for one in schema_to_pyarrow(table.schema(), include_field_ids=False)}
        for one in schema:
            if one.name in there and not _fits(one.type, there[one.name].type):
                raise PipelineError(
                    f"column {one.name} of {self.name} is {there[one.name].type}, but the rows have {one.type}: select"
                    " it with a cast"
                )
        lacking = [one.name for one in there.values() if not one.nullable and one.name not in schema.names]
        if lacking:
            raise PipelineError(f"{self.name} needs a value in column {lacking[0]}, which the rows do not have")
        new = [one for one in schema if one.name not in there]
        if not new:
            return table
        if not self._merge_schema:
            names = ", ".join(one.name for one in new)
            raise PipelineError(f"{self.name} has no column {names}: select other columns, or set merge_schema")
        with table.update_schema() as update:
            update.union_by_name(nullable(new))
        return self._loaded()


def _marks_of(table: Any) -> dict[str, int]:
    """The marks of the newest snapshot that has any; else those of the table's property."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        if text := _summary(snapshot).get(MARKS):
            return dict(json.loads(text))
        snapshot = None if snapshot.parent_snapshot_id is None else table.snapshot_by_id(snapshot.parent_snapshot_id)
    return dict(json.loads(table.properties.get(MARKS, "{}")))


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
    return one == other or (one, other) in (("int32", "int64"), ("float", "double"))


def _local(file: NewFile) -> NewFile:
    return NewFile(re.sub("^file:/*", "/", file.path).lstrip(os.sep), file.size, file.rows, file.partition, file.stats)


__all__ = ["iceberg_table"]
