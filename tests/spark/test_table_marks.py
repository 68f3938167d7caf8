"""Tables with many marks: they are read in one go, and do not fill the table's metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.offsets import tree_of
from fencepost.spark_pipelines.export_store import Manifest
from fencepost.spark_pipelines.tables.delta_marks import marks_in_log
from fencepost.spark_pipelines.tables.table_store import TableStore, end_mark
from tests.spark.tables_kit import FORMATS, batch, catalog_of, staged, table_in

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
NAMES = [f"mark/{number}" for number in range(30)]


def by_deltalake(directory: Path) -> dict[str, int | None]:
    from deltalake import DeltaTable

    plain = DeltaTable(directory / "lake.orders")
    return {name: plain.transaction_version(name) for name in NAMES}


def in_log(directory: Path, version: int) -> dict[str, int] | None:
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    root = SubTreeFileSystem(str(directory / "lake.orders"), LocalFileSystem())
    return marks_in_log(root, version, NAMES)


def split_checkpoint(directory: Path, version: int) -> None:
    """Put the rows of a checkpoint into two files, as Spark does for large ones."""
    import json

    from pyarrow import parquet

    log = directory / "lake.orders" / "_delta_log"
    whole = log / f"{version:020d}.checkpoint.parquet"
    rows = parquet.read_table(whole)
    for part, begin in enumerate((0, rows.num_rows // 2)):
        half = rows.slice(begin, rows.num_rows // 2 if part == 0 else None)
        parquet.write_table(half, log / f"{version:020d}.checkpoint.{part + 1:010d}.{2:010d}.parquet")
    whole.unlink()
    (log / "_last_checkpoint").write_text(json.dumps({"version": version, "size": rows.num_rows, "parts": 2}))


def test_many_marks_of_a_delta_table_are_those_that_deltalake_finds_one_by_one(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    table = table_in(tmp_path, "delta")
    for number in range(12):
        marks = {name: number for index, name in enumerate(NAMES[:-1]) if (index + number) % 3 == 0}
        table.append(staged(table, batch([number])), marks, {})
        if number in (3, 9):
            DeltaTable(tmp_path / "lake.orders").create_checkpoint()
        assert in_log(tmp_path, number + 1) is not None
        assert table.marks(NAMES) == {name: mark for name, mark in by_deltalake(tmp_path).items() if mark is not None}
    expected = table.marks(NAMES)
    assert len(expected) == len(NAMES) - 1
    split_checkpoint(tmp_path, 10)
    assert in_log(tmp_path, 12) == expected == table.marks(NAMES)
    log = tmp_path / "lake.orders" / "_delta_log"
    for number in range(10):
        (log / f"{number:020d}.json").unlink()  # as a clean-up does
    assert in_log(tmp_path, 12) == expected
    (log / f"{10:020d}.checkpoint.{2:010d}.{2:010d}.parquet").unlink()
    (log / f"{4:020d}.checkpoint.parquet").unlink()
    assert in_log(tmp_path, 12) is None, "half a checkpoint is none"


@pytest.mark.parametrize("table_format", FORMATS)
def test_an_export_of_many_partitions_finds_its_position_and_keeps_the_metadata_small(
    tmp_path: Path, table_format: str
) -> None:
    partitions = [TopicPartition("orders", number) for number in range(500)]
    what: dict[str, Any] = {"topics": ["orders"]}
    store = TableStore(table_in(tmp_path, table_format))
    assert store.last(partitions, what, "cluster", {"orders": "aa"}) is None
    begin = end = dict.fromkeys(partitions, 0)
    for number in range(5):
        end = {**begin, partitions[number]: 10, partitions[number + 1]: 3}
        files = staged(table_in(tmp_path, table_format), batch([number]))
        table = table_in(tmp_path, table_format)
        table.write_task(batch([0]).schema)
        store = TableStore(table)
        store.last(partitions, what, "cluster", {"orders": "aa"})
        store.publish(files, Manifest(number, tree_of(begin), tree_of(end), 1, {}, what, "cluster", {"orders": "aa"}))
        begin = end
    again = TableStore(table_in(tmp_path, table_format)).last(partitions, what, "cluster", {"orders": "aa"})
    assert again is not None
    assert (again.batch, again.ends()) == (4, end)
    if table_format == "delta":
        commits = sorted((tmp_path / "lake.orders" / "_delta_log").glob("*.json"))
        assert commits[-1].read_text().count('"txn"') == 3, "the batch, and the two positions that it changed"
        assert end_mark(partitions[0]) not in commits[-1].read_text()
        return
    from pyiceberg.catalog import load_catalog

    metadata = load_catalog("tests", **catalog_of(tmp_path)).load_table("lake.orders").metadata_location
    size = Path(metadata.removeprefix("file://")).stat().st_size
    assert size < 5 * 500 * 40, "five snapshots; in plain text each would hold 500 positions of 80 bytes and more"
