"""Tables for the tests: both formats in a directory, rows for them, and what other libraries read from them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fencepost.spark_pipelines import Table, delta_table, iceberg_table
from fencepost.spark_pipelines.tables.table import NewFile

FORMATS = ("delta", "iceberg")
SCHEMA = pa.schema([("number", pa.int64()), ("word", pa.string())])
DAYS = pa.schema([("number", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("word", pa.string())])


def catalog_of(directory: Path) -> dict[str, str]:
    """The settings of an Iceberg catalog in SQLite."""
    directory.mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}/warehouse"}


def table_in(directory: Path, table_format: str, **more: Any) -> Table:
    """The table "lake.orders"; for Delta a directory of this name."""
    if table_format == "delta":
        return delta_table(directory / "lake.orders", **more)
    return iceberg_table("lake.orders", catalog="tests", properties=catalog_of(directory), **more)


def rows_in(directory: Path, table_format: str) -> list[dict[str, Any]]:
    """All rows, read by the format's own library."""
    if table_format == "delta":
        from deltalake import DeltaTable

        found: pa.Table = pa.table(DeltaTable(directory / "lake.orders").to_pyarrow_dataset().to_table())
    else:
        from pyiceberg.catalog import load_catalog

        found = load_catalog("tests", **catalog_of(directory)).load_table("lake.orders").scan().to_arrow()
    return list(found.to_pylist())


def batch(numbers: Sequence[int], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Rows with these numbers; columns but `number` and `word` are null."""
    rows = [{"number": number, "word": f"word {number % 3}"} for number in numbers]
    return pa.RecordBatch.from_pylist(rows, schema)


def staged(table: Table, *batches: pa.RecordBatch) -> list[NewFile]:
    """Files as a task of Spark writes them: the task's work is sent as bytes."""
    work = pickle.loads(pickle.dumps(table.write_task(batches[0].schema)))
    found: Iterator[pa.RecordBatch] = work(iter(batches))
    return [
        NewFile(row["path"], row["size"], row["rows"], dict(row["partition"] or {}), row["stats"])
        for told in found
        for row in told.to_pylist()
    ]
