"""Tables of Delta Lake and Iceberg without Spark: files and marks in one commit, also under kills and races."""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import compute

from fencepost.spark_pipelines import PipelineError, delta_table, iceberg_table
from fencepost.spark_pipelines.tables.spark import _is_done
from tests.spark.conftest import ROOT
from tests.spark.tables_kit import DAYS, FORMATS, SCHEMA, batch, catalog_of, rows_in, staged, table_in

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
both = pytest.mark.parametrize("table_format", FORMATS)
KILLS = 100 if "FENCEPOST_LONG" in os.environ else 8


def numbers_in(directory: Path, table_format: str) -> list[int]:
    return sorted(row["number"] for row in rows_in(directory, table_format))


@both
def test_files_and_marks_are_committed_together(tmp_path: Path, table_format: str) -> None:
    table = table_in(tmp_path, table_format)
    assert table.marks(["position"]) == {}, "there is no table yet"
    files = staged(table, batch(range(10)), batch(range(10, 15)))
    assert rows_in(tmp_path, table_format) == [], "nothing before the commit"
    table.append(files, {"position": 15, "other": 1}, {"position": None})
    assert numbers_in(tmp_path, table_format) == list(range(15))
    assert table.marks(["position", "other", "no"]) == {"position": 15, "other": 1}
    table.append([], {"position": 20}, {"position": 15})
    assert table.marks(["position", "other"]) == {"position": 20, "other": 1}
    assert numbers_in(tmp_path, table_format) == list(range(15))


@both
def test_a_commit_after_a_change_of_its_marks_is_refused(tmp_path: Path, table_format: str) -> None:
    """A second job with the same name, or a job that was taken for dead: it planned from an older position."""
    table = table_in(tmp_path, table_format)
    table.append(staged(table, batch(range(5))), {"position": 5}, {"position": None})
    late = staged(table, batch(range(5)))
    with pytest.raises(PipelineError, match=r"another writer changed position in .*lake\.orders meanwhile"):
        table.append(late, {"position": 5}, {"position": None})
    table.discard(late)
    assert numbers_in(tmp_path, table_format) == list(range(5))
    left = [path.name for path in tmp_path.rglob("part-*.parquet")]
    assert len(left) == 1, "discarded files are deleted"


@both
def test_of_two_commits_at_once_with_one_mark_one_is_refused(tmp_path: Path, table_format: str) -> None:
    """Both see the same position, and commit in the same instant; with other marks both get in."""
    make = table_in(tmp_path, table_format)
    make.append(staged(make, batch([-1])), {"position": 0}, {"position": None})
    for turn in range(6):
        outcomes: list[str] = []
        barrier = threading.Barrier(2)

        def commit(who: int, turn: int = turn, outcomes: list[str] = outcomes, at: Any = barrier) -> None:
            table = table_in(tmp_path, table_format)
            same = turn % 2 == 0
            mark = "position" if same else f"of {who}"
            seen = {mark: table.marks([mark]).get(mark)}
            files = staged(table, batch([turn * 10 + (0 if same else who)]))
            at.wait()
            try:
                table.append(files, {mark: turn + 1}, seen)
                outcomes.append("committed")
            except PipelineError as error:
                outcomes.append("refused" if "another writer changed" in str(error) else str(error))

        threads = [threading.Thread(target=commit, args=(who,)) for who in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == (["committed", "refused"] if turn % 2 == 0 else ["committed"] * 2)
    assert numbers_in(tmp_path, table_format) == [-1, 0, 10, 11, 20, 30, 31, 40, 50, 51]


_WRITER = """
import sys
from pathlib import Path
from tests.spark.tables_kit import batch, staged, table_in

table = table_in(Path(sys.argv[1]), sys.argv[2])
while True:
    begin = table.marks(["position"]).get("position", 0)
    table.append(staged(table, batch(range(begin, begin + 3))), {"position": begin + 3}, {"position": begin or None})
    print(begin + 3, flush=True)
"""


@both
@pytest.mark.long
def test_a_writer_that_is_killed_with_9_at_any_moment_doubles_and_loses_nothing(
    tmp_path: Path, table_format: str
) -> None:
    chance = random.Random(42)
    for _ in range(KILLS):
        command = [sys.executable, "-c", _WRITER, str(tmp_path), table_format]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            told = int(writer.stdout.readline())
            time.sleep(chance.random() * 0.2)
            writer.send_signal(signal.SIGKILL)
            told = max([told, *map(int, writer.stdout.read().split())])
        found = numbers_in(tmp_path, table_format)
        assert found == list(range(len(found)))
        assert len(found) >= told, "what was committed is there"
        assert table_in(tmp_path, table_format).marks(["position"]) == {"position": len(found)}


@both
def test_marks_outlive_the_upkeep_of_the_table(tmp_path: Path, table_format: str) -> None:
    """Compaction, checkpoints and the removal of old snapshots by others (delta-io/delta-rs#1431's kind)."""
    table = table_in(tmp_path, table_format)
    for number in range(12):
        table.append(staged(table, batch([number])), {"position": number + 1}, {"position": number or None})
    if table_format == "delta":
        from deltalake import DeltaTable

        plain = DeltaTable(tmp_path / "lake.orders")
        plain.optimize.compact()
        plain.create_checkpoint()
        for log in sorted((tmp_path / "lake.orders" / "_delta_log").glob("*.json"))[: plain.version()]:
            log.unlink()  # as the clean-up of expired logs does
        DeltaTable(tmp_path / "lake.orders").vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    else:
        from pyiceberg.catalog import load_catalog

        iceberg = load_catalog("tests", **catalog_of(tmp_path)).load_table("lake.orders")
        iceberg.append(pa.table(batch([12])).cast(iceberg.schema().as_arrow()))
        iceberg.maintenance.expire_snapshots().older_than(dt.datetime.now() + dt.timedelta(days=1)).commit()
        assert len(iceberg.refresh().snapshots()) == 1
    assert table.marks(["position"]) == {"position": 12}
    table.append(staged(table, batch([12])), {"position": 13}, {"position": 12})
    assert set(numbers_in(tmp_path, table_format)) == set(range(13))


def test_the_position_of_an_iceberg_table_goes_back_with_a_rollback(tmp_path: Path) -> None:
    """Else the rolled back rows would be missing for ever."""
    table = table_in(tmp_path, "iceberg")
    for number in range(3):
        table.append(staged(table, batch([number])), {"position": number + 1}, {"position": number or None})
    from pyiceberg.catalog import load_catalog

    iceberg = load_catalog("tests", **catalog_of(tmp_path)).load_table("lake.orders")
    first = iceberg.snapshots()[0].snapshot_id
    with iceberg.manage_snapshots() as change:
        change.rollback_to_snapshot(first)
    assert numbers_in(tmp_path, "iceberg") == [0]
    assert table.marks(["position"]) == {"position": 1}
    table.append(staged(table, batch([1])), {"position": 2}, {"position": 1})
    assert numbers_in(tmp_path, "iceberg") == [0, 1]


@both
def test_a_table_made_again_under_its_name_has_no_marks(tmp_path: Path, table_format: str) -> None:
    table = table_in(tmp_path, table_format)
    table.append(staged(table, batch(range(3))), {"position": 3}, {"position": None})
    if table_format == "delta":
        os.rename(tmp_path / "lake.orders", tmp_path / "old")
    else:
        from pyiceberg.catalog import load_catalog

        load_catalog("tests", **catalog_of(tmp_path)).drop_table("lake.orders")
    assert table.marks(["position"]) == {}
    files = staged(table, batch(range(3)))
    table.append(files, {"position": 3}, {"position": None})
    assert numbers_in(tmp_path, table_format) == [0, 1, 2]


@both
def test_a_commit_into_a_table_made_again_meanwhile_is_refused(tmp_path: Path, table_format: str) -> None:
    table = table_in(tmp_path, table_format)
    table.append(staged(table, batch(range(3))), {"position": 3}, {"position": None})
    files = staged(table, batch(range(3, 6)))
    if table_format == "delta":
        os.rename(tmp_path / "lake.orders", tmp_path / "old")
    else:
        from pyiceberg.catalog import load_catalog

        load_catalog("tests", **catalog_of(tmp_path)).drop_table("lake.orders")
    staged(table, batch([0]))
    with pytest.raises(PipelineError, match=r"another writer changed position|do not write to this machine"):
        table.append(files, {"position": 6}, {"position": 3})
    assert numbers_in(tmp_path, table_format) == []


@both
def test_missing_columns_are_added_only_if_they_may(tmp_path: Path, table_format: str) -> None:
    table = table_in(tmp_path, table_format)
    table.append(staged(table, batch([1])), {"position": 1}, {"position": None})
    wider = SCHEMA.append(pa.field("price", pa.float64()))
    with pytest.raises(PipelineError, match="has no column price: select other columns, or set merge_schema"):
        staged(table, batch([2], wider))
    merging = table_in(tmp_path, table_format, merge_schema=True)
    priced = pa.RecordBatch.from_pylist([{"number": 2, "word": "two", "price": 2.5}], wider)
    merging.append(staged(merging, priced), {"position": 2}, {"position": 1})
    table.append(staged(table, batch([3])), {"position": 3}, {"position": 2})
    prices = {row["number"]: row["price"] for row in rows_in(tmp_path, table_format)}
    assert prices == {1: None, 2: 2.5, 3: None}
    assert numbers_in(tmp_path, table_format) == [1, 2, 3]
    other = pa.schema([("number", pa.string()), ("word", pa.string())])
    with pytest.raises(PipelineError, match="number"):
        table.write_task(other)
    with pytest.raises(PipelineError, match="number"):
        merging.write_task(other)


def test_rules_of_a_delta_table_that_files_could_break_are_refused(tmp_path: Path) -> None:
    """Constraints, and names of columns that are not those in the files: readers would find wrong rows, or nulls."""
    from deltalake import DeltaTable, Field, Schema

    mapped = DeltaTable.create(tmp_path / "mapped", SCHEMA, configuration={"delta.columnMapping.mode": "name"})
    checked = DeltaTable.create(tmp_path / "checked", SCHEMA)
    checked.alter.add_constraint({"positive": "number > 0"})
    for plain, rule in ((mapped, "columnMapping"), (checked, "constraints.positive")):
        with pytest.raises(PipelineError, match=rule):
            delta_table(plain.table_uri).write_task(SCHEMA)
    fields = [Field("number", "long", nullable=False), Field("word", "string")]
    table = delta_table(DeltaTable.create(tmp_path / "strict", Schema(fields)).table_uri)
    table.append(staged(table, batch([1])), {"position": 1}, {"position": None})
    with pytest.raises(ValueError, match="null"):
        staged(table, pa.RecordBatch.from_pylist([{"number": None, "word": "x"}], SCHEMA))
    with pytest.raises(PipelineError, match="needs a value in column number"):
        table.write_task(pa.schema([("word", pa.string())]))


def test_iceberg_partitions_by_parts_of_a_time_and_readers_skip_the_others(tmp_path: Path) -> None:
    table = table_in(tmp_path, "iceberg", partition_by=["day(at)", "word"])
    start = dt.datetime(2026, 11, 27, 22, tzinfo=dt.UTC)
    rows = [
        {"number": n, "at": None if n == 7 else start + dt.timedelta(hours=n), "word": None if n == 8 else f"w{n % 2}"}
        for n in range(30)
    ]
    table.append(staged(table, pa.RecordBatch.from_pylist(rows, DAYS)), {"position": 30}, {"position": None})
    assert sorted(rows_in(tmp_path, "iceberg"), key=lambda row: row["number"]) == rows
    from pyiceberg.catalog import load_catalog

    iceberg = load_catalog("tests", **catalog_of(tmp_path)).load_table("lake.orders")
    scan = iceberg.scan("at >= '2026-11-28T00:00:00+00:00' and at < '2026-11-29T00:00:00+00:00' and word = 'w0'")
    assert len(list(scan.plan_files())) == 1
    assert [row["number"] for row in scan.to_arrow().to_pylist()] == [n for n in range(2, 26, 2) if n != 8]


def test_delta_partitions_by_columns_and_its_statistics_let_readers_skip_files(tmp_path: Path) -> None:
    table = table_in(tmp_path, "delta", partition_by=["word"])
    for begin in (0, 100):
        rows = batch(range(begin, begin + 9))
        table.append(staged(table, rows), {"position": begin + 9}, {"position": begin - 91 if begin else None})
    from deltalake import DeltaTable

    plain = DeltaTable(tmp_path / "lake.orders")
    assert plain.metadata().partition_columns == ["word"]
    assert len(plain.file_uris()) == 6
    dataset = plain.to_pyarrow_dataset()
    wanted = (compute.field("number") >= 100) & (compute.field("word") == "word 1")
    assert len(list(dataset.get_fragments(filter=wanted))) == 1
    assert sorted(dataset.to_table(filter=wanted).column("number").to_pylist()) == [100, 103, 106]
    again = table_in(tmp_path, "delta", partition_by=["number"])
    with pytest.raises(PipelineError, match="is divided by word, not by number"):
        staged(again, batch([1]))
    with pytest.raises(PipelineError, match=r"no column day to divide .* by; they have number, word"):
        staged(delta_table(tmp_path / "other", partition_by=["day"]), batch([1]))


def test_files_that_executors_wrote_elsewhere_are_refused(tmp_path: Path) -> None:
    for table_format in FORMATS:
        table = table_in(tmp_path, table_format)
        files = staged(table, batch([1]))
        for path in tmp_path.rglob("part-*.parquet"):
            path.unlink()
        with pytest.raises(PipelineError, match="mount it on all of them"):
            table.append(files, {"position": 1}, {"position": None})


def test_what_cannot_be_a_table_is_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"write it as NAMESPACE\.TABLE"):
        iceberg_table("orders")
    with pytest.raises(PipelineError, match="minute"):
        staged(table_in(tmp_path, "iceberg", partition_by=["minute(number)"]), batch([1]))
    with pytest.raises(PipelineError, match="Delta Lake cannot hold these columns"):
        delta_table(tmp_path / "d").write_task(pa.schema([("span", pa.duration("us"))]))
    with pytest.raises(PipelineError, match="is not divided by column"):
        delta_table(tmp_path / "d", partition_by=["at"]).write_task(DAYS)


@pytest.mark.parametrize(
    ("last", "same", "batch_id", "first", "outcome"),
    [
        (None, False, 0, None, False),
        (None, False, 7, 7, False),
        (None, False, 7, None, "has no batch of writer"),
        (3, True, 4, None, False),
        (3, True, 9, None, "the batches between them are missing"),
        (3, True, 9, 9, False),
        (3, True, 3, None, True),
        (3, True, 2, None, "is an old copy"),
        (3, False, 4, None, "its checkpoint was deleted"),
        (3, False, 0, None, "its checkpoint was deleted"),
    ],
)
def test_what_a_writer_does_with_a_batch(
    last: int | None, same: bool, batch_id: int, first: int | None, outcome: bool | str
) -> None:
    if isinstance(outcome, bool):
        assert _is_done("t", "w", last, same, batch_id, first) is outcome
    else:
        with pytest.raises(PipelineError, match=outcome):
            _is_done("t", "w", last, same, batch_id, first)


@both
def test_tables_in_an_object_store(tmp_path: Path, table_format: str) -> None:
    """No directory, no jar: the library's own store, in the tasks and for the commit."""
    from tests.kit.s3_server import BUCKET, S3Server

    with S3Server() as store:
        keys = store.options()
        if table_format == "delta":
            options = {
                "AWS_ENDPOINT_URL": store.endpoint,
                "AWS_ACCESS_KEY_ID": keys["access_key_id"],
                "AWS_SECRET_ACCESS_KEY": keys["secret_access_key"],
                "AWS_REGION": keys["region"],
                "AWS_ALLOW_HTTP": "true",
            }
            table = delta_table(f"s3://{BUCKET}/orders", storage_options=options)
        else:
            properties = {
                **catalog_of(tmp_path),
                "warehouse": f"s3://{BUCKET}/warehouse",
                "s3.endpoint": store.endpoint,
                "s3.access-key-id": keys["access_key_id"],
                "s3.secret-access-key": keys["secret_access_key"],
                "s3.region": keys["region"],
            }
            table = iceberg_table("lake.orders", catalog="tests", properties=properties)
        assert table.marks(["position"]) == {}
        table.append(staged(table, batch(range(10))), {"position": 10}, {"position": None})
        late = staged(table, batch(range(10, 15)))
        table.append(staged(table, batch(range(10, 15))), {"position": 15}, {"position": 10})
        with pytest.raises(PipelineError, match="another writer changed position"):
            table.append(late, {"position": 15}, {"position": 10})
        table.discard(late)
        contents = table.contents()
        found = [row["number"] for item in contents.items for part in contents.read(item) for row in part.to_pylist()]
        assert sorted(found) == list(range(15))
