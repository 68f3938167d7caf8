"""What a stranger found: upkeep, rollbacks, lost answers and strange rows of tables that an export writes."""

from __future__ import annotations

import datetime as dt
import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fencepost.spark_pipelines import PipelineError, delta_table, iceberg_table
from tests.spark.tables_kit import DAYS, FORMATS, SCHEMA, batch, catalog_of, rows_in, staged, table_in

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
both = pytest.mark.parametrize("table_format", FORMATS)


def iceberg_in(directory: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("tests", **catalog_of(directory)).load_table("lake.orders")


def numbers_in(directory: Path, table_format: str) -> list[int]:
    return sorted(row["number"] for row in rows_in(directory, table_format))


def test_a_commit_of_iceberg_whose_answer_is_lost_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """apache/iceberg#14583, #5752: a 409 after the commit was done. The manifests of that commit were deleted."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitFailedException

    table = table_in(tmp_path, "iceberg")
    files = staged(table, batch(range(3)))
    commit, lost = SqlCatalog.commit_table, [True]

    def commit_then_lose_the_answer(*args: Any) -> Any:
        answer = commit(*args)
        if lost.pop() if lost else False:
            raise CommitFailedException("409")
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_then_lose_the_answer)
    table.append(files, {"position": 3}, {"position": None})
    assert numbers_in(tmp_path, "iceberg") == [0, 1, 2]
    assert len(iceberg_in(tmp_path).snapshots()) == 1


def test_a_rollback_of_iceberg_behind_the_first_mark_takes_all_marks_back(tmp_path: Path) -> None:
    table = table_in(tmp_path, "iceberg")
    staged(table, batch([0]))
    plain = iceberg_in(tmp_path)
    plain.append(pa.table(batch([100])).cast(plain.schema().as_arrow()))
    first = plain.current_snapshot().snapshot_id
    table.append(staged(table, batch(range(5))), {"position": 5}, {"position": None})
    plain = iceberg_in(tmp_path)
    with plain.manage_snapshots() as change:
        change.rollback_to_snapshot(first)
    assert table.marks(["position"]) == {}


def test_a_rollback_of_iceberg_that_nothing_tells_any_more_is_refused(tmp_path: Path) -> None:
    table = table_in(tmp_path, "iceberg")
    table.append(staged(table, batch([0])), {"position": 1}, {"position": None})
    plain = iceberg_in(tmp_path)
    plain.append(pa.table(batch([100])).cast(plain.schema().as_arrow()))
    others = plain.current_snapshot().snapshot_id
    table.append(staged(table, batch([1])), {"position": 2}, {"position": 1})
    plain = iceberg_in(tmp_path)
    with plain.manage_snapshots() as change:
        change.rollback_to_snapshot(others)
    assert table.marks(["position"]) == {"position": 1}
    marked = [one.snapshot_id for one in plain.snapshots() if one.snapshot_id != others]
    expiry = plain.maintenance.expire_snapshots()
    for snapshot in marked:
        expiry = expiry.by_id(snapshot)
    expiry.commit()
    with pytest.raises(PipelineError, match="nothing tells which rows it holds"):
        table.marks(["position"])


@pytest.mark.parametrize("change", ["rename", "drop and add"])
def test_a_name_that_another_column_of_iceberg_had_is_refused(tmp_path: Path, change: str) -> None:
    """Files name their columns: rows of before would show their old values in the new column, or lose them."""
    from pyiceberg.types import StringType

    table = table_in(tmp_path, "iceberg", merge_schema=True)
    table.append(staged(table, batch([1])), {"position": 1}, {"position": None})
    plain = iceberg_in(tmp_path)
    with plain.update_schema() as update:
        if change == "rename":
            update.rename_column("word", "text")
        else:
            update.delete_column("word")
    with pytest.raises(PipelineError, match="had another column word before"):
        staged(table, batch([2]))
    with plain.update_schema() as update:
        update.add_column("word", StringType())
    with pytest.raises(PipelineError, match="had another column word before"):
        staged(table, batch([2]))


def test_a_delta_table_that_is_replaced_while_files_are_written_is_refused(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    table = table_in(tmp_path, "delta")
    table.append(staged(table, batch([1])), {"position": 1}, {"position": None})
    files = staged(table, batch([2]))
    rows = pa.table(batch([3]))
    write_deltalake(table.name, rows, mode="overwrite", schema_mode="overwrite", partition_by=["word"])
    with pytest.raises(PipelineError, match="were changed while a batch was written"):
        table.append(files, {"position": 2}, {"position": 1})
    assert numbers_in(tmp_path, "delta") == [3]


def test_a_delta_table_that_forgets_marks_is_refused(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    forgets = {"delta.setTransactionRetentionDuration": "interval 1 days"}
    DeltaTable.create(tmp_path / "lake.orders", SCHEMA, configuration=forgets)
    with pytest.raises(PipelineError, match="setTransactionRetentionDuration"):
        staged(table_in(tmp_path, "delta"), batch([1]))


@pytest.mark.parametrize("feature", ["identityColumns", "rowTracking", "appendOnly"])
def test_a_feature_of_delta_that_the_library_cannot_write_is_refused_before_the_files(
    tmp_path: Path, feature: str
) -> None:
    """deltalake refuses it at the commit. appendOnly is one that it can write."""
    from deltalake import DeltaTable

    schema = pa.schema([("a", pa.int64())])
    DeltaTable.create(str(tmp_path), schema)
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    table = delta_table(tmp_path)
    if feature == "appendOnly":
        table.write_task(schema)
        table.append([], {"mark": 1}, {})
        assert table.marks(["mark"]) == {"mark": 1}
    else:
        with pytest.raises(PipelineError, match=feature):
            table.write_task(schema)


def test_partition_values_that_iceberg_cannot_be_told_are_refused(tmp_path: Path) -> None:
    """Long values have no bounds in Parquet, and NaN is none: such rows were in the partition of null."""
    table = table_in(tmp_path, "iceberg", partition_by=["word"])
    long = pa.RecordBatch.from_pylist([{"number": 1, "word": "x" * 5000}], SCHEMA)
    with pytest.raises(ValueError, match="a value of word is too large for the table's partitions"):
        staged(table, long)
    floats = pa.schema([("number", pa.float64())])
    (tmp_path / "other").mkdir()
    other = table_in(tmp_path / "other", "iceberg", partition_by=["number"])
    with pytest.raises(PipelineError, match="NaN has no place"):
        other.write_task(floats)


def test_times_at_the_ends_of_spark_and_beyond(tmp_path: Path) -> None:
    """estuary/connectors#4361: bounds beyond year 9999 ended the write."""
    late = pa.RecordBatch.from_arrays(
        [pa.array([1, 2]), pa.array([253_402_300_800_000_000, 0]).cast(DAYS.field("at").type), pa.array(["a", "b"])],
        schema=DAYS,
    )
    table = table_in(tmp_path, "delta")
    table.append(staged(table, late), {"position": 1}, {"position": None})
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    first = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    ends = pa.RecordBatch.from_pylist([{"number": 3, "at": last}, {"number": 4, "at": first}], DAYS)
    files = staged(table, ends)
    table.append(files, {"position": 2}, {"position": 1})
    contents = table.contents()
    read = pa.Table.from_batches([part for item in contents.items for part in contents.read(item)])
    assert sorted(read.column("number").to_pylist()) == [1, 2, 3, 4]
    iceberg = table_in(tmp_path, "iceberg")
    with pytest.raises(PipelineError, match="up to the year 9999"):
        iceberg.append(staged(iceberg, late), {"position": 1}, {"position": None})


def test_delta_files_of_others_with_encoded_paths_are_read(tmp_path: Path) -> None:
    """delta-rs#1079, #1299."""
    from deltalake import write_deltalake

    rows = pa.table({"number": [1], "word": ["a%20b/c=d \u00e9"]}, schema=SCHEMA)
    write_deltalake(str(tmp_path / "lake.orders"), rows, partition_by=["word"])
    contents = table_in(tmp_path, "delta").contents()
    found = [row for item in contents.items for part in contents.read(item) for row in part.to_pylist()]
    assert found == rows.to_pylist()


def test_more_partitions_than_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fencepost.spark_pipelines.tables import write_files

    monkeypatch.setattr(write_files, "OPEN_FILES_MAX", 5)
    rows = [{"number": number, "word": f"w{number % 40}"} for number in range(200)]
    table = table_in(tmp_path, "delta", partition_by=["word"])
    table.append(staged(table, pa.RecordBatch.from_pylist(rows, SCHEMA)), {"position": 1}, {"position": None})
    assert numbers_in(tmp_path, "delta") == list(range(200))


@both
def test_tables_without_the_partition_column_in_the_rows_or_that_are_none(tmp_path: Path, table_format: str) -> None:
    table = table_in(tmp_path, table_format, partition_by=["word"])
    staged(table, batch([1]))
    with pytest.raises(PipelineError, match="is divided by word, but the rows have only number"):
        table.write_task(pa.schema([("number", pa.int64())]))
    if table_format == "delta":
        (tmp_path / "file").write_text("no table")
        with pytest.raises(PipelineError, match="cannot be opened as a Delta table"):
            delta_table(tmp_path / "file").marks(["position"])
        return
    (tmp_path / "catalog.db").write_bytes(b"no database, whatever it says" * 100)
    with pytest.raises(PipelineError, match="cannot be"):
        table.marks(["position"])


def test_a_catalog_without_settings_says_where_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    table = iceberg_table("lake.orders", catalog="unknown")
    with pytest.raises(PipelineError, match=r"catalog unknown cannot be opened: .*--table-option NAME=VALUE"):
        table.marks(["position"])


@both
def test_writers_with_different_marks_do_not_hinder_each_other(tmp_path: Path, table_format: str) -> None:
    make = table_in(tmp_path, table_format)
    make.append(staged(make, batch([-1])), {"position": 0}, {"position": None})
    failed: list[BaseException] = []

    def write(who: int) -> None:
        table = table_in(tmp_path, table_format)
        try:
            table.append(staged(table, batch([who])), {f"of {who}": 1}, {f"of {who}": None})
        except BaseException as error:  # noqa: BLE001 - the main thread tells it
            failed.append(error)

    threads = [threading.Thread(target=write, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert numbers_in(tmp_path, table_format) == [-1, *range(6)]
