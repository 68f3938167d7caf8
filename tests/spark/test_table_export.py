"""Export into tables with a real Spark and broker, and the audit of a table against its topic."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fencepost.cli.main import cli
from fencepost.spark_pipelines import (
    PipelineError,
    Shape,
    append_exactly_once,
    audit_table,
    export,
    read_table,
)
from tests.spark.conftest import WAIT_SECONDS, Transact, create_again, new_topic
from tests.spark.killed import kill_when
from tests.spark.tables_kit import FORMATS, catalog_of, rows_in, table_in

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
both = pytest.mark.parametrize("table_format", FORMATS)


def place_words(directory: Path, table_format: str) -> list[str]:
    """The options of the command that name the table of `table_in`."""
    if table_format == "delta":
        return [str(directory / "lake.orders"), "--format", "delta"]
    pairs = [word for name, value in catalog_of(directory).items() for word in ("--table-option", f"{name}={value}")]
    return ["lake.orders", "--format", "iceberg", "--catalog", "tests", *pairs]


def values_in(directory: Path, table_format: str) -> list[bytes]:
    return sorted(row["value"] for row in rows_in(directory, table_format))


@both
def test_committed_records_are_in_the_table_once_and_the_audit_proves_it(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path, table_format: str
) -> None:
    kafka = {"bootstrap.servers": bootstrap}
    for at in range(0, 90, 30):
        transact([(number % 3, b"%03d" % number) for number in range(at, at + 30)])
    transact([(number % 3, b"x") for number in range(9)], commit=False)
    table = table_in(tmp_path, table_format)
    first = list(export(spark, [topic], table, kafka=kafka, batch_records=50))
    assert len(first) >= 2, "transactions of 30 in batches of 50 offsets"
    assert [one.batch for one in first] == list(range(len(first)))
    assert sum(one.rows for one in first) == 90
    assert list(export(spark, [topic], table, kafka=kafka)) == [], "all of it is there"
    transact([(1, b"more")])
    (last,) = export(spark, [topic], table_in(tmp_path, table_format), kafka=kafka)
    assert (last.rows, last.batch) == (1, len(first))
    assert values_in(tmp_path, table_format) == sorted([b"%03d" % number for number in range(90)] + [b"more"])
    frame = read_table(spark, table)
    assert frame.select("topic", "partition", "offset").distinct().count() == frame.count() == 91

    report = audit_table(spark, [topic], table, kafka=kafka)
    assert (report.sound, report.rows, report.rows_in_table) == (True, 91, 91), report
    with pytest.raises(PipelineError, match="was started with other topics, another shape or other headers"):
        list(export(spark, [topic], table, kafka=kafka, shape=Shape(where="partition = 0")))
    other = new_topic(bootstrap, f"{topic}-other")
    with pytest.raises(PipelineError, match="was started with other topics"):
        list(export(spark, [other], table, kafka=kafka))
    create_again(bootstrap, topic)
    with pytest.raises(PipelineError, match="was deleted and created again since the last export"):
        list(export(spark, [topic], table, kafka=kafka))


@both
def test_the_audit_finds_lost_doubled_and_changed_rows(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path, table_format: str
) -> None:
    """Negative controls: what the audit is to find is planted by the table's own library."""
    kafka = {"bootstrap.servers": bootstrap}
    transact([(0, b"%d" % number) for number in range(20)])
    table = table_in(tmp_path, table_format)
    list(export(spark, [topic], table, kafka=kafka))
    if table_format == "delta":
        from deltalake import DeltaTable, write_deltalake

        plain = DeltaTable(tmp_path / "lake.orders")
        rows = plain.to_pyarrow_dataset().to_table()
        plain.delete("offset = 3")
        write_deltalake(plain, rows.slice(5, 2), mode="append")
    else:
        from pyiceberg.catalog import load_catalog

        iceberg = load_catalog("tests", **catalog_of(tmp_path)).load_table("lake.orders")
        rows = iceberg.scan().to_arrow()
        iceberg.delete("offset = 3")
        iceberg.append(rows.slice(5, 2))
    report = audit_table(spark, [topic], table, kafka=kafka)
    assert (report.missing, report.extra, report.sound) == (1, 2, False)
    assert any("'offset': 3" in one and "1 in the topics, 0 in the table" in one for one in report.examples)
    words = ["spark", "audit", topic, "--table", *place_words(tmp_path, table_format), "--bootstrap", bootstrap]
    run = CliRunner().invoke(cli, words)
    assert run.exit_code == 1
    assert "FAULTS: 1 rows are missing, 2 rows are too many" in run.output


def test_the_audit_of_parquet_directories_leaves_out_what_retention_deleted(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    kafka = {"bootstrap.servers": bootstrap}
    transact([(0, b"%d" % number) for number in range(20)])
    list(export(spark, [topic], tmp_path / "lake", kafka=kafka))
    bare = tmp_path / "bare"
    list(export(spark, [topic], bare, kafka=kafka, shape=Shape(select="value")))
    admin = AdminClient(kafka)
    for deleted in admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        deleted.result(WAIT_SECONDS)
    report = audit_table(spark, [topic], tmp_path / "lake", kafka=kafka)
    assert (report.sound, report.rows) == (True, 15)
    with pytest.raises(PipelineError, match="has no columns topic, partition, offset to leave them out"):
        audit_table(spark, [topic], bare, kafka=kafka, shape=Shape(select="value"))
    (next(bare.glob("batch=*/*.parquet"))).unlink()
    with pytest.raises(PipelineError, match="was started with topics"):
        audit_table(spark, [new_topic(bootstrap, f"{topic}-2")], bare, kafka=kafka, shape=Shape(select="value"))


@both
def test_an_export_into_a_table_that_is_killed_and_started_again_has_every_record_once(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path, table_format: str
) -> None:
    expected = [b"%04d" % number for number in range(300)]
    for at in range(0, 300, 100):
        transact([(number % 3, expected[number]) for number in range(at, at + 100)])
        transact([(2, b"x")] * 5, commit=False)
    words = ["spark", "export", topic, "--into", *place_words(tmp_path, table_format), "--batch-records", "30"]
    table = table_in(tmp_path, table_format)
    kill_when(
        [*words, "--bootstrap", bootstrap, "--master", "local[1]"],
        tmp_path / "log",
        lambda: table.marks(["fencepost/export/batch"]),
    )
    kafka = {"bootstrap.servers": bootstrap}
    list(export(spark, [topic], table, kafka=kafka))
    assert values_in(tmp_path, table_format) == expected
    assert audit_table(spark, [topic], table, kafka=kafka).sound


def test_no_commit_of_a_table_shows_a_part_of_a_transaction(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """Transactions over three partitions that overlap, in smaller batches; the control ends batches anywhere."""
    kafka = {"bootstrap.servers": bootstrap}
    expected = write_overlapping(bootstrap, topic, rounds=3)
    torn = {}
    for whole, table_format in [*((True, table_format) for table_format in FORMATS), (False, "delta")]:
        directory = tmp_path / f"{whole}-{table_format}"
        table = table_in(directory, table_format)
        commits, torn[whole, table_format] = 0, False
        for _ in export(spark, [topic], table, kafka=kafka, batch_records=7, whole_transactions=whole):
            torn[whole, table_format] |= any(
                0 < seen < 6 for seen in Counter(values_in(directory, table_format)).values()
            )
            commits += 1
        assert commits >= 3
        assert Counter(values_in(directory, table_format)) == dict.fromkeys(expected, 6)
    assert torn == {(whole, table_format): not whole for whole, table_format in torn}


def write_overlapping(bootstrap: str, topic: str, rounds: int) -> list[bytes]:
    """Transactions of six records, two in each partition; three overlap in each round. Returns their names."""
    from confluent_kafka import Producer

    producers = [
        Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{number}", "linger.ms": 0})
        for number in range(3)
    ]
    for producer in producers:
        producer.init_transactions(WAIT_SECONDS)
    names = []
    for number in range(rounds):
        for producer in producers:
            producer.begin_transaction()
        for part in range(6):
            for index, producer in enumerate(producers):
                producer.produce(topic, b"%d-%d" % (number, index), partition=(part + index) % 3)
                assert producer.flush(WAIT_SECONDS) == 0
        for index, producer in enumerate(producers):
            names.append(b"%d-%d" % (number, index))
            producer.commit_transaction(WAIT_SECONDS)
    return names


def test_a_delta_table_by_days_is_written_by_the_command(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path
) -> None:
    transact([(0, b"1"), (1, b"2")])
    shape = ["--select", "cast(value AS string) AS value, offset, date(timestamp) AS day"]
    words = ["spark", "export", topic, "--into", str(tmp_path / "t"), "--format", "delta", *shape]
    run = CliRunner().invoke(cli, [*words, "--partition-by", "day", "--bootstrap", bootstrap])
    assert run.exit_code == 0, run.output
    assert "2 rows in 1 new batch" in run.output
    from deltalake import DeltaTable

    plain = DeltaTable(tmp_path / "t")
    assert plain.metadata().partition_columns == ["day"]
    today = dt.datetime.now(dt.UTC).date()
    assert {row["day"] for row in plain.to_pyarrow_dataset().to_table().to_pylist()} <= {
        today,
        today - dt.timedelta(days=1),
    }
    audit = ["spark", "audit", topic, "--table", str(tmp_path / "t"), "--format", "delta", *shape, "--json"]
    run = CliRunner().invoke(cli, [*audit, "--bootstrap", bootstrap])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["rows"] == 2
    for wrong in (["--format", "delta"], ["--where", "true"], ["--table", "x", "--catalog", "c"]):
        assert CliRunner().invoke(cli, ["spark", "audit", topic, *wrong, "--bootstrap", bootstrap]).exit_code == 2


@both
def test_for_each_batch_appends_once_and_a_lost_checkpoint_is_noticed(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path, table_format: str
) -> None:
    """A query fails after its commit, runs the batch again, and then starts with a new checkpoint."""
    table = table_in(tmp_path, table_format)
    fail_once = [True]

    def into(frame: Any, batch_id: int) -> None:
        append_exactly_once(frame.select("offset", "value"), batch_id, table, writer_id="orders")
        if fail_once.pop() if fail_once else False:
            raise RuntimeError("the user's function fails after the commit")

    def run(checkpoint: str) -> None:
        source = spark.readStream.format("fencepost").option("kafka.bootstrap.servers", bootstrap)
        query = (
            source.option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.foreachBatch(into)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(300)

    transact([(0, b"1"), (1, b"2")])
    with pytest.raises(Exception, match="fails after the commit"):
        run("first")
    run("first")
    transact([(2, b"3")])
    run("first")
    assert values_in(tmp_path, table_format) == [b"1", b"2", b"3"]
    with pytest.raises(Exception, match="its checkpoint was deleted, or two queries share the writer_id"):
        run("second")
    assert values_in(tmp_path, table_format) == [b"1", b"2", b"3"]
    with pytest.raises(ValueError, match="the query's id is unknown"):
        append_exactly_once(spark.range(1), 0, table, writer_id="orders")


@both
def test_headers_nulls_and_strange_names_of_columns(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path, table_format: str
) -> None:
    """Lists of Iceberg were read as Arrow's large ones, and names with dots, or of the audit's own, ended a query."""
    from confluent_kafka import Producer

    kafka = {"bootstrap.servers": bootstrap}
    producer = Producer(kafka)
    producer.produce(topic, b"1", headers=[("a", b"x"), ("b", None)])
    producer.produce(topic, None, key=b"k")
    assert producer.flush(WAIT_SECONDS) == 0
    select = "offset, key AS `a.b`, value AS side, headers AS one, partition AS other, topic AS `ü n`"
    table, shape = table_in(tmp_path, table_format), Shape(select=select)
    assert [one.rows for one in export(spark, [topic], table, kafka=kafka, shape=shape, headers=True)] == [2]
    found = sorted(rows_in(tmp_path, table_format), key=lambda row: (row["side"] is None, row["offset"]))
    assert [(row["a.b"], row["side"], row["ü n"]) for row in found] == [(None, b"1", topic), (b"k", None, topic)]
    report = audit_table(spark, [topic], table, kafka=kafka, shape=shape, headers=True)
    assert (report.sound, report.rows) == (True, 2), report
    with pytest.raises(PipelineError, match="was started with other topics, another shape or other headers"):
        audit_table(spark, [topic], table, kafka=kafka, shape=shape)


def test_a_filter_without_hits_moves_the_position(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path
) -> None:
    """Else retention of records that the filter had left out was taken for data loss."""
    kafka, shape = {"bootstrap.servers": bootstrap}, Shape(where="length(value) > 10")
    transact([(0, b"%d" % number) for number in range(20)])
    table = table_in(tmp_path, "delta")
    assert [one.rows for one in export(spark, [topic], table, kafka=kafka, shape=shape)] == [0]
    assert list(export(spark, [topic], table, kafka=kafka, shape=shape)) == []
    transact([(0, b"a long value")])
    assert [one.rows for one in export(spark, [topic], table, kafka=kafka, shape=shape)] == [1]
    assert audit_table(spark, [topic], table, kafka=kafka, shape=shape).sound
