"""What a pipeline needs of a table: marks, a writer for Spark's tasks, and one commit of files and marks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fencepost.extras import install
from fencepost.spark_pipelines.errors import MissingPartError, PipelineError

if TYPE_CHECKING:
    import pyarrow as pa

INSTALL_TABLES = install("tables")
"""How to install the libraries of Delta Lake and Iceberg. Change this when fencepost is on a package index."""

Marks = Mapping[str, int]
"""Numbers that a table keeps by name: positions in topics, and the numbers of batches."""
SeenMarks = Mapping[str, int | None]
"""Marks that a commit depends on, as they were before; None: there was none."""
WriteTask = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""Writes the rows of one task of Spark into files; yields rows that describe the files (`NewFile`)."""
ReadTask = Callable[[Any], Iterator["pa.RecordBatch"]]


@dataclass(frozen=True)
class NewFile:
    """A Parquet file that a task wrote and that the table does not hold yet."""

    path: str
    """As the table names it: relative to a Delta table, a full location for Iceberg."""
    size: int
    """In bytes."""
    rows: int
    partition: Mapping[str, str | None]
    """The file's partition values by column, as Delta's log writes them; empty for Iceberg, which finds them itself."""
    stats: str
    """Delta's statistics of the columns, as JSON; empty for Iceberg."""


class Contents(NamedTuple):
    """A table at one version."""

    marks: dict[str, int]
    schema: pa.Schema
    items: list[Any]
    """One for each file."""
    read: ReadTask
    """Reads an item, in Spark's tasks."""


class Table(Protocol):
    """A table of Delta Lake or Iceberg. A commit adds files and sets marks, or does neither.

    The methods raise PipelineError, and the errors of the table's library if its store or catalog fails.
    """

    @property
    def name(self) -> str:
        """For messages: the location, or the name in the catalog."""

    def marks(self, names: Iterable[str]) -> dict[str, int]:
        """The marks of these names that the table holds now; none if the table does not exist."""

    def write_task(self, schema: pa.Schema) -> WriteTask:
        """A writer for rows of this schema. Creates the table, or checks its columns, or adds missing columns."""

    def append(self, files: Sequence[NewFile], marks: Marks, seen: SeenMarks) -> None:
        """Commit the files and the marks, if the marks of `seen` are still what they were.

        Raises PipelineError, and commits nothing, if another writer changed one of them meanwhile.
        """

    def discard(self, files: Sequence[NewFile]) -> None:
        """Delete files that were not committed."""

    def contents(self, names: Iterable[str] = ()) -> Contents:
        """The rows of this moment, and the marks of these names at the same moment."""


def number_of(text: str) -> int:
    """A mark for a text that is compared only for equality: the first 63 bits of its SHA-256."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def check_seen(table: str, now: Marks, seen: SeenMarks) -> None:
    """Raise PipelineError if the marks are not those that the batch was planned with."""
    for name, mark in seen.items():
        if now.get(name) != mark:
            raise PipelineError(
                f"another writer changed {name} in {table} meanwhile, so this batch was not committed: stop one of the"
                " two"
            )


def check_has(table: str, rows: pa.Schema, column: str) -> None:
    """Raise PipelineError if the rows lack a column by which the table is divided."""
    if column not in rows.names:
        raise PipelineError(f"{table} is divided by {column}, but the rows have only {', '.join(rows.names)}")


def first_line(error: BaseException) -> str:
    """The text of a library's error without its stack traces."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def small_types(schema: pa.Schema) -> pa.Schema:
    """The schema with the types that Spark has: Arrow's large ones hold the same values."""
    import pyarrow as pa

    def field(one: pa.Field) -> pa.Field:
        return one.with_type(small(one.type))

    def small(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_large_string(kind):
            return pa.string()
        if pa.types.is_large_binary(kind):
            return pa.binary()
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return pa.list_(field(kind.value_field))
        if pa.types.is_map(kind):
            return pa.map_(field(kind.key_field), field(kind.item_field))
        if pa.types.is_struct(kind):
            return pa.struct([field(one) for one in kind])
        return kind

    return pa.schema([field(one) for one in schema])


def check_columns(
    table: str, rows: pa.Schema, there: pa.Schema, fits: Callable[[pa.DataType, pa.DataType], bool], *, may_add: bool
) -> list[pa.Field]:
    """The columns of the rows that must be added to the table.

    Raises PipelineError if the table cannot hold the rows: a column has a type that does not fit, a column that needs
    a value is not among them, or the table lacks one and may not get it.
    """
    for one in rows:
        if one.name in there.names and not fits(one.type, there.field(one.name).type):
            raise PipelineError(
                f"column {one.name} of {table} is {there.field(one.name).type}, but the rows have {one.type}: select it"
                " with a cast"
            )
    for one in there:
        if not one.nullable and one.name not in rows.names:
            raise PipelineError(f"{table} needs a value in column {one.name}, which the rows do not have")
    new = [one for one in rows if one.name not in there.names]
    if new and not may_add:
        names = ", ".join(one.name for one in new)
        raise PipelineError(f"{table} has no column {names}: select other columns, or set merge_schema")
    return new


def nullable(fields: Iterable[pa.Field]) -> pa.Schema:
    """The columns of a table for rows with these: Spark's columns of no null need not stay without null."""
    import pyarrow as pa

    return pa.schema([one.with_nullable(True) for one in fields])


def as_written(rows: pa.Schema, required: Collection[str]) -> pa.Schema:
    """The schema of the files: timestamps in UTC, as Spark's have the session's zone, and no null where none may be.

    A task whose rows have nulls in a required column fails.
    """
    import pyarrow as pa

    def written(one: pa.Field) -> pa.Field:
        zoned = pa.types.is_timestamp(one.type) and one.type.tz is not None
        one = one.with_type(pa.timestamp(one.type.unit, "UTC")) if zoned else one
        return one.with_nullable(one.name not in required)

    return pa.schema([written(one) for one in rows])


def is_local(location: str) -> bool:
    """Whether this names a directory of a mounted file system."""
    return "://" not in location


def check_files_are_here(root: str, files: Sequence[NewFile]) -> None:
    """Raise PipelineError if tasks wrote local files on another machine."""
    for file in files:
        path = os.path.join(root, file.path)
        if not os.path.exists(path) or os.path.getsize(path) != file.size:
            raise PipelineError(f"Spark's executors do not write to this machine's {root}: mount it on all of them")


def missing_library(name: str, error: ImportError) -> MissingPartError:
    """The error if the library of a table format is not installed."""
    return MissingPartError(f"{name} cannot be imported ({error}). Install it with: {INSTALL_TABLES}")
