"""`option("read", "direct")`: the stores of a cluster are read, and its brokers are not asked.

tests/spark/test_source_matrix.py reads every case of the source this way, too.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("psycopg")

from fencepost.broker.cluster.engine import StoreUnavailable
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.spark_connector.option_values import OptionError
from fencepost.spark_connector.source import direct_reader
from fencepost.spark_connector.source.options import parse_options
from fencepost.spark_connector.source.reader import DataLossError
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer, postgres_or_skip
from tests.kit.waiting import until
from tests.spark.conftest import WAIT_SECONDS
from tests.spark.source_world import Topic, World, tasks

confluent = pytest.importorskip("confluent_kafka")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NO_MERGING = {"cluster.merge.interval.ms": "3600000", "cluster.gc.interval.ms": "3600000"}
MERGING = {
    "cluster.merge.interval.ms": "200",
    "cluster.gc.interval.ms": "300",
    "cluster.merge.min.rows": "2",
    "log.retention.check.interval.ms": "300",
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_or_skip() as started:
        yield started


@pytest.fixture
def cluster(server: PostgresServer, tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, server) as processes:
        yield processes


def direct(cluster: ClusterProcesses) -> dict[str, str]:
    return {"read": "direct", "store": cluster.store, "objects": f"file://{cluster.objects}"}


def history(topic: Topic, random: Random, count: int) -> None:
    """Transactions and plain records of several sizes, inline in the database and in objects."""
    for number in range(count):
        size_bytes = random.choice((1, 100, 30_000))
        records = [(random.randrange(2), b"%d " % number + bytes(size_bytes)) for _ in range(random.randint(1, 6))]
        match random.randrange(4):
            case 0:
                topic.abort(records)
            case 1:
                topic.plain(records, **{"compression.type": random.choice(("none", "lz4", "zstd", "gzip"))})
            case _:
                topic.commit(records, headers=[("number", b"%d" % number)], timestamp=1_000 + 10 * number)


def test_the_same_rows_as_through_brokers_for_all_options(cluster: ClusterProcesses) -> None:
    world = World(cluster.start(1, **NO_MERGING).address)
    topic, empty = world.topic(2), world.topic(1)
    history(topic, Random(5), 60)
    waiting = topic.open([(0, b"open"), (1, b"open")])
    topic.commit([(0, b"after"), (1, b"after")])
    end = topic.batch()[-1].offset
    for options in (
        {},
        {"includeHeaders": "true"},
        {"columns": "value,offset"},
        {"kafka.isolation.level": "read_uncommitted"},
        {"minPartitions": "7"},
        {"maxRecordsPerPartition": "3"},
        {"startingOffsets": topic.range_json(p0=7, p1=-2), "endingOffsets": topic.range_json(p0=20, p1=-1)},
        {"startingTimestamp": "1200"},
        {"startingTimestamp": "1", "endingTimestamp": "9999999999999"},
        {"startingTimestamp": "9999999999999", "startingOffsetsByTimestampStrategy": "latest"},
        {"assign": f'{{"{topic.name}": [1]}}', "startingOffsets": topic.range_json(p1=end // 2)},
        {"subscribePattern": f"{topic.name[:-1]}.|{empty.name}"},
        {"subscribePattern": ".*"},
        {"subscribe": empty.name},
    ):
        expected = topic.rows(**options)
        assert topic.rows(**options, **direct(cluster)) == expected, options
        assert expected or "subscribe" in options or "startingOffsetsByTimestampStrategy" in options
    waiting.abort()


def test_no_broker_is_needed(cluster: ClusterProcesses) -> None:
    broker = cluster.start(1, **NO_MERGING)
    topic = World(broker.address).topic(2)
    history(topic, Random(6), 10)
    expected = topic.rows()
    assert broker.stop() == 0
    without = {"kafka.bootstrap.servers": "127.0.0.1:1", **direct(cluster)}
    assert topic.rows(**without) == expected


@pytest.mark.parametrize("ahead", [1, 50_000])
def test_rows_that_are_merged_after_the_plan_are_found_again(
    cluster: ClusterProcesses, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects of the plan are gone; also where the reader is in the middle of a row that was merged."""
    monkeypatch.setattr(direct_reader, "BYTES_AT_ONCE", ahead)
    monkeypatch.setattr(direct_reader, "ROWS_AT_ONCE", 5)
    first = cluster.start(1, **NO_MERGING)
    topic = World(first.address, direct(cluster)).topic(1)
    for number in range(40):
        topic.plain([(0, b"%d " % number + bytes(30_000))] * 3)
    source = topic.source()
    reader = source.reader(source.schema())
    (work,) = reader.partitions()
    reading = reader.read(work)
    values = next(reading).column("value").to_pylist()
    before = cluster.files()
    assert first.stop() == 0
    cluster.start(2, **MERGING)
    until(lambda: not before & cluster.files(), what="the objects of the plan to be deleted")
    for batch in reading:
        values += batch.column("value").to_pylist()
    assert [int(value.split(b" ")[0]) for value in values] == sorted([*range(40)] * 3)


def test_a_plan_has_whole_transactions_only(cluster: ClusterProcesses) -> None:
    """Each transaction writes to both partitions; a plan that asks one after the other may see it in one of them."""
    broker = cluster.start(1, **MERGING)
    topic = World(broker.address, direct(cluster)).topic(2)
    topic.commit([(0, b"first"), (1, b"first")])
    stop = threading.Event()

    def write(name: str) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            write_one = topic.abort if number % 5 == 0 else topic.commit
            write_one([(0, b"%s-%d" % (name.encode(), number)), (1, b"%s-%d" % (name.encode(), number))])

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    try:
        sizes = []
        for _ in range(25):
            found = Counter(row["value"] for row in topic.rows())
            assert set(found.values()) == {2}, "every value is in both partitions"
            assert not any(int(value.split(b"-")[1]) % 5 == 0 for value in found if b"-" in value), "none is aborted"
            sizes.append(len(found))
    finally:
        stop.set()
        for writer in writers:
            writer.join(WAIT_SECONDS)
    assert sizes[-1] > sizes[0]


@pytest.mark.parametrize("settings", [NO_MERGING, MERGING], ids=["runs", "merged"])
def test_a_transaction_behind_an_open_one_is_in_no_partition(
    cluster: ClusterProcesses, settings: dict[str, str]
) -> None:
    """Each partition ends at its own last stable offset; only partition 0 has an open transaction.

    It hides `second` there, so partition 1 ends before `second`. That hides `third`, so partition 2 ends before it.
    """
    topic = World(cluster.start(1, **settings).address, direct(cluster)).topic(4)
    topic.commit([(0, b"first"), (1, b"first"), (2, b"first")])
    waiting = topic.open([(0, b"open")])
    topic.commit([(0, b"second"), (1, b"second"), (1, b"second")])
    topic.commit([(1, b"third"), (2, b"third")])
    topic.abort([(1, b"aborted"), (2, b"aborted")])
    topic.commit([(3, b"other")])
    if settings is MERGING:
        # Six commits came since `first`. A last one may stay alone: so few rows are not merged.
        until(lambda: cluster.rows()[f"{topic.name}-1"] <= 2, what="the rows of partition 1 to be merged")
    source = topic.source()
    plan = {one.value.tp.partition: one.value.stop for one in source.reader(source.schema()).partitions()}
    assert plan == {0: 2, 1: 2, 2: 2, 3: 2}, "the record of first and its marker"
    assert Counter(row["value"] for row in topic.rows()) == {b"first": 3, b"other": 1}
    waiting.commit()
    assert Counter(row["value"] for row in topic.rows()) == {
        b"first": 3, b"open": 1, b"second": 3, b"third": 2, b"other": 1
    }  # fmt: skip


def test_a_transaction_around_the_beginning_of_an_open_one(cluster: ClusterProcesses) -> None:
    """In partition 0, `before` and `around` begin below the last stable offset, and their markers are above it.

    `before` has no record above it, so both its records are read, as through brokers. `around` has one, so none is.
    """
    topic = World(cluster.start(1, **NO_MERGING).address, direct(cluster)).topic(2)
    before = topic.open([(0, b"before"), (1, b"before")])
    around = topic.open([(0, b"around"), (1, b"around")])
    waiting = topic.open([(0, b"open")])
    around.write(topic.name, 0, b"around")
    before.commit()
    assert [row["value"] for row in topic.rows()] == [b"before", b"before"]
    around.commit()
    assert [row["value"] for row in topic.rows()] == [b"before", b"before"]
    waiting.abort()
    assert Counter(row["value"] for row in topic.rows()) == {b"before": 2, b"around": 3}


def test_records_that_are_deleted_after_the_plan_are_data_loss(cluster: ClusterProcesses) -> None:
    at_once = {"log.segment.delete.delay.ms": "0", "log.retention.check.interval.ms": "200"}
    world = World(cluster.start(1, **NO_MERGING, **at_once).address, direct(cluster))
    topic = world.topic(1)
    topic.plain([(0, b"%d" % number) for number in range(10)])
    topic.plain([(0, b"10")])
    plans = []
    for fail in ("true", "false"):
        source = topic.source(failOnDataLoss=fail)
        reader = source.reader(source.schema())
        plans.append((reader, reader.partitions()))
    (deleted,) = world.admin.delete_records([confluent.TopicPartition(topic.name, 0, 4)]).values()
    deleted.result(WAIT_SECONDS)
    with pytest.raises(DataLossError, match="offsets 0 to 4 were deleted, the partition now holds 4 to 11"):
        tasks(*plans[0])
    assert [row["offset"] for rows in tasks(*plans[1]) for row in rows] == [*range(4, 11)]
    world.admin.delete_topics([topic.name])[topic.name].result(WAIT_SECONDS)
    until(lambda: all(head.name != f"{topic.name}-0" for head in cluster.engine.heads()), what="the log to be deleted")
    with pytest.raises(DataLossError, match="the partition was deleted, and offsets 0 to 11 with it"):
        tasks(*plans[0])
    assert tasks(*plans[1]) == [[]]


def test_an_object_that_is_missing_ends_the_query_with_its_name(cluster: ClusterProcesses) -> None:
    topic = World(cluster.start(1, **NO_MERGING).address, direct(cluster)).topic(1)
    topic.plain([(0, bytes(100_000))])
    (lost,) = cluster.files()
    lost.unlink()
    with pytest.raises(CorruptLogFile, match=rf"{lost.name} at byte \d+: the object does not exist"):
        topic.rows()


def test_bytes_of_another_partition_end_the_query_instead_of_being_returned(cluster: ClusterProcesses) -> None:
    """They are whole batches, and as many as the row's: only the row's checksum shows that they are not its own."""
    topic = World(cluster.start(1, **NO_MERGING).address, direct(cluster)).topic(2)
    topic.plain([(0, b"0" * 100_000)])
    topic.plain([(1, b"1" * 100_000)])
    one, other = (path for path in cluster.files() if path.stat().st_size < 150_000)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    with pytest.raises(CorruptLogFile, match=rf"{one.name} at byte 0: the bytes have CRC-32C"):
        topic.rows()
    one.write_bytes(content)
    assert {row["partition"]: bytes(row["value"][:1]) for row in topic.rows()} == {0: b"0", 1: b"1"}


def test_stores_that_are_not_there(cluster: ClusterProcesses, tmp_path: Path) -> None:
    given = {"subscribe": "t", "kafka.default.api.timeout.ms": "600", **direct(cluster)}
    topic = Topic(World("127.0.0.1:1", given), "t")
    with pytest.raises(ValueError, match="no broker has used this database yet"):
        topic.rows()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"PostgreSQL at 127\.0\.0\.1:1/none"):
        topic.rows(store="postgresql://nobody@127.0.0.1:1/none")
    assert time.monotonic() - began >= 0.1, "it was tried again"


def test_options_that_do_not_go_together() -> None:
    stores = {"store": "postgresql://h/d", "objects": "file:///o"}
    with pytest.raises(OptionError, match="option store needs option read = direct"):
        parse_options({"subscribe": "t", "kafka.bootstrap.servers": "b:1", **stores})
    with pytest.raises(OptionError, match="option objects is missing: option read = direct needs it"):
        parse_options({"subscribe": "t", "read": "direct", "store": "postgresql://h/d"})
    with pytest.raises(OptionError, match=r"option kafka\.bootstrap\.servers is missing"):
        parse_options({"subscribe": "t", "read": "direct", **stores, "commitGroup": "g"})
    with pytest.raises(OptionError, match="option read = 'both': must be one of brokers, direct"):
        parse_options({"subscribe": "t", "kafka.bootstrap.servers": "b:1", "read": "both"})
    assert parse_options({"subscribe": "t", "READ": "Direct", **stores}).stores is not None


def test_in_spark(cluster: ClusterProcesses, spark: Any) -> None:
    """A batch and a stream in a real Spark, with tasks in its Python workers."""
    broker = cluster.start(1, **MERGING)
    topic = World(broker.address).topic(3)
    topic.commit([(number % 3, b"%d" % number) for number in range(300)])
    topic.abort([(0, b"aborted")])
    options = {"subscribe": topic.name, "startingOffsets": "earliest", **direct(cluster)}
    frame = spark.read.format("fencepost").options(**options).load()
    assert sorted(int(bytes(row.value)) for row in frame.collect()) == [*range(300)]
    stream = spark.readStream.format("fencepost").options(**options).load()
    query = stream.writeStream.format("memory").queryName("direct").trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_SECONDS)
    assert sorted(int(bytes(row.value)) for row in spark.table("direct").collect()) == [*range(300)]


def test_filters_in_spark(cluster: ClusterProcesses, spark: Any) -> None:
    """They are pushed down to a plan of the stores."""
    topic = World(cluster.start(1, **NO_MERGING).address).topic(3)
    for number in range(30):
        topic.commit([(number % 3, b"%d" % number)], timestamp=1_700_000_000_000 + number)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        reader = spark.read.format("fencepost").options(subscribe=topic.name, pushFilters="true", **direct(cluster))
        frame = reader.load().filter("timestamp >= timestamp_millis(1700000000020) AND partition < 2")
        assert frame.rdd.getNumPartitions() == 2
        assert sorted(int(bytes(row.value)) for row in frame.collect()) == [21, 22, 24, 25, 27, 28]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
