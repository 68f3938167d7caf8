"""The files that Spark's tasks write for tables: their sizes, partitions and statistics."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from fencepost.spark_pipelines import PipelineError, delta_table
from fencepost.spark_pipelines.tables import write_files
from fencepost.spark_pipelines.tables.write_files import PartitionColumn, WriteFiles
from tests.spark.tables_kit import DAYS, FORMATS, SCHEMA, batch, rows_in, staged, table_in

pytest.importorskip("deltalake")

times = st.datetimes(dt.datetime(1890, 1, 1), dt.datetime(2200, 1, 1)).map(lambda one: one.replace(tzinfo=dt.UTC))
values = st.fixed_dictionaries(
    {"number": st.none() | st.integers(-(2**63), 2**63 - 1), "at": st.none() | times, "word": st.none() | st.text()}
)


class InMemory:
    """A place of files for a task."""

    def __init__(self) -> None:
        self.files: dict[str, pa.BufferOutputStream] = {}

    def create(self, name: str) -> tuple[str, Any]:
        self.files[name] = pa.BufferOutputStream()
        return name, self.files[name]

    def delete(self, path: str) -> None:
        del self.files[path]


@given(st.lists(values, min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_statistics_bound_every_value(rows: list[dict[str, Any]]) -> None:
    """A bound that is too narrow hides rows from readers."""
    (told,) = WriteFiles(InMemory(), DAYS, stats=True)(iter([pa.RecordBatch.from_pylist(rows, DAYS)]))
    stats = json.loads(told.column("stats")[0].as_py())
    assert stats["numRecords"] == len(rows)
    for name in DAYS.names:
        present = [row[name] for row in rows if row[name] is not None]
        assert stats["nullCount"][name] == len(rows) - len(present)
        if name not in stats["minValues"]:
            assert name == "word" or not present
            continue
        low, high = stats["minValues"][name], stats["maxValues"][name]
        if name == "at":
            low, high = dt.datetime.fromisoformat(low), dt.datetime.fromisoformat(high)
        assert low <= min(present)
        assert max(present) <= high


def test_a_task_closes_large_files_and_deletes_its_files_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_files, "FILE_BYTES", 4_000)
    monkeypatch.setattr(write_files, "OPEN_BYTES_MAX", 8_000)
    table = delta_table(tmp_path / "t", partition_by=["word"])
    files = staged(table, *[batch(range(n * 100, n * 100 + 100)) for n in range(30)])
    assert len(files) > 3, "three partitions"
    assert sum(file.rows for file in files) == 3000
    table.append(files, {"position": 1}, {"position": None})

    def breaks() -> Any:
        yield batch(range(10))
        raise RuntimeError("the task ends")

    before = set(tmp_path.rglob("part-*"))
    work = table.write_task(SCHEMA)
    with pytest.raises(RuntimeError, match="the task ends"):
        list(work(breaks()))
    assert set(tmp_path.rglob("part-*")) == before


def test_rows_are_divided_by_utc_parts_of_a_time() -> None:
    """Also where Spark's session, and so the rows' timestamps, have another zone."""
    zone = pa.schema([("at", pa.timestamp("us", tz="America/New_York"))])
    at = [dt.datetime(2026, 11, 28, hour, tzinfo=dt.UTC) for hour in (1, 23)]
    rows = pa.RecordBatch.from_pylist([{"at": one} for one in at], zone)
    utc = pa.schema([("at", pa.timestamp("us", tz="UTC"))])

    (told,) = WriteFiles(InMemory(), utc, (PartitionColumn("at", "day"),))(iter([rows]))
    assert told.column("rows").to_pylist() == [2]


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize(
    ("kind", "value", "physical"),
    [
        (pa.decimal128(5, 2), Decimal("-999.99"), "INT32"),
        (pa.decimal128(18, 2), Decimal("1.25"), "INT64"),
        (pa.decimal128(38, 2), Decimal("-1.25"), "FIXED_LEN_BYTE_ARRAY"),
        (pa.int8(), -128, "INT32"),
        (pa.int16(), -300, "INT32"),
    ],
    ids=str,
)
def test_narrow_numbers_are_stored_as_the_formats_specify(
    tmp_path: Path, table_format: str, kind: pa.DataType, value: Any, physical: str
) -> None:
    """Iceberg demands integers for decimals of up to 18 digits; they were byte arrays."""
    pytest.importorskip("pyiceberg")
    rows = pa.RecordBatch.from_pylist([{"value": value}, {"value": None}], pa.schema([("value", kind)]))
    table = table_in(tmp_path, table_format)
    for number in range(2):  # the second one finds the table
        table.append(staged(table, rows), {"batch": number}, {})
    widened = pa.int32() if table_format == "iceberg" and pa.types.is_integer(kind) else kind
    found = table.contents()
    assert found.schema.field("value").type == widened, "Iceberg has no integer below 32 bits"
    assert [
        row for item in found.items for part in found.read(item) for row in part.to_pylist()
    ] == 2 * rows.to_pylist()
    assert sorted(rows_in(tmp_path, table_format), key=str) == sorted(2 * rows.to_pylist(), key=str)
    files = list(tmp_path.rglob("part-*.parquet"))
    assert [parquet.ParquetFile(path).schema.column(0).physical_type for path in files] == [physical] * 2


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_narrow_number_that_the_table_does_not_have_is_refused_before_a_file_is_written(
    tmp_path: Path, table_format: str
) -> None:
    pytest.importorskip("pyiceberg")
    table = table_in(tmp_path, table_format)
    wide, narrow = pa.schema([("value", pa.decimal128(10, 2))]), pa.schema([("value", pa.decimal128(5, 2))])
    table.append(staged(table, pa.RecordBatch.from_pylist([{"value": Decimal(1)}], wide)), {"batch": 0}, {})
    files = set(tmp_path.rglob("*.parquet"))
    with pytest.raises(PipelineError, match=r"column value of .* is decimal128\(10, 2\), but the rows have .*5, 2"):
        table.write_task(narrow)
    assert set(tmp_path.rglob("*.parquet")) == files
