"""The source's read cases, each against our broker and against a real Apache Kafka: what is visible, and nothing else.

`read_committed` is right when a batch, a stream, a stream of small micro-batches and any split of the work into tasks
see the same records. Rows C9 and I2 of docs/rules.md say what a reader is given.
"""

import random
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from hypothesis import given, settings
from pyspark.sql.datasource import Filter

from fencepost.protocol.topics import IsolationLevel
from fencepost.spark_connector.source.planner import PlanError
from fencepost.spark_connector.source.reader import DataLossError
from tests.interop.conftest import started
from tests.interop.java.real_kafka import RealKafka
from tests.kit.broker_process import BrokerProcess
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import postgres_or_skip
from tests.kit.waiting import until
from tests.spark.source_world import DEADLINE_SECONDS, OpenTransaction, Seen, Topic, World, numbered, values, x
from tests.spark.sql_filters import BASE_MS, filters, meeting

confluent = pytest.importorskip("confluent_kafka")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

MERGING = {"cluster.merge.interval.ms": "200", "cluster.gc.interval.ms": "500", "cluster.inline.max.bytes": "0"}
CLEANING = {"log.cleaner.backoff.ms": "100", "log.retention.ms": "-1"}
KINDS = ("fencepost", "kafka", "direct")


@pytest.fixture(scope="module", params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Our broker on files, then a real Kafka, then the stores of a cluster; skipped where those cannot be had."""
    where = tmp_path_factory.mktemp(f"matrix-{request.param}")
    if request.param == "direct":
        with postgres_or_skip() as server, ClusterProcesses(where, server) as cluster:
            broker = cluster.start(1, **CLEANING, **MERGING)
            stores = {"read": "direct", "store": cluster.store, "objects": f"file://{cluster.objects}"}
            yield World(broker.address, stores)
        return
    if request.param == "fencepost":
        with BrokerProcess(where, data_dir=where / "data", settings=CLEANING) as broker:
            yield World(broker.address)
        return
    with started(RealKafka(where / "kafka", settings=CLEANING)) as kafka:
        yield World(kafka.address)


@pytest.fixture
def topic(world: World) -> Topic:
    return world.topic()


def check_all_ways(topic: Topic, expected: list[Seen], *, vanishing: bytes | None = None) -> None:
    """However the work is cut up, the same records come, and no micro-batch is empty.

    Records of the value `vanishing` may be cleaned away between two looks.
    """

    def lasting(found: list[Seen]) -> list[Seen]:
        return found if vanishing is None else [one for one in found if one.value != vanishing]

    expected = lasting(expected)
    assert lasting(topic.batch()) == expected
    assert lasting(topic.batch(minPartitions="7")) == expected
    assert lasting(topic.batch(maxRecordsPerPartition="1")) == expected
    for options in ({}, {"maxRecordsPerTrigger": "3"}, {"maxBytesPerTrigger": "100"}):
        with topic.stream(**options).available_now() as stream:
            assert lasting(stream.all()) == expected, options
            assert 0 not in stream.sizes or not expected or vanishing, (
                f"an empty micro-batch with {options}: {stream.sizes}"
            )
            if "maxRecordsPerTrigger" in options:
                assert max(stream.sizes, default=0) <= 3, stream.sizes
    assert lasting(topic.batch(startingOffsets="earliest", columns="partition,offset,value")) == expected


def test_holes_at_the_start_in_the_middle_and_at_the_end(topic: Topic) -> None:
    topic.abort(x(0, 3))
    topic.commit(numbered(0, 1, 2) + numbered(1, 3))
    topic.abort(x(0, 2) + x(1, 4))
    topic.commit(numbered(0, 4))
    topic.abort(x(0, 5))
    check_all_ways(topic.settled(), [Seen(0, 4, b"1"), Seen(0, 5, b"2"), Seen(0, 9 + 1, b"4"), Seen(1, 0, b"3")])


def test_nothing_but_aborted_records_is_no_row_and_one_step(topic: Topic) -> None:
    for _ in range(4):
        topic.abort(x(0, 3) + x(1, 3))
    topic.settled()
    check_all_ways(topic, [])
    with topic.stream(maxRecordsPerTrigger="1").available_now() as stream:
        assert stream.all() == []
        assert len(stream.sizes) <= 1


def test_ranges_that_are_only_markers(topic: Topic) -> None:
    topic.commit(numbered(0, 1))
    topic.commit(numbered(0, 2))
    topic.settled()
    for marker in (1, 3):
        rest = {"startingOffsets": topic.range_json(p0=marker, p1=0)}
        assert topic.batch(**rest, endingOffsets=topic.range_json(p0=marker + 1, p1=0)) == []
    assert topic.batch(startingOffsets=topic.range_json(p0=1, p1=0)) == [Seen(0, 2, b"2")]
    with topic.stream(startingOffsets=topic.range_json(p0=1, p1=0), maxRecordsPerTrigger="1") as stream:
        assert stream.step() == [Seen(0, 2, b"2")]
        assert stream.step() is None


def test_a_transaction_that_is_open_at_planning_time_hides_what_comes_behind_it_until_it_ends(topic: Topic) -> None:
    topic.commit(numbered(0, 1))
    first, second = topic.open(numbered(0, 2)), topic.open(x(0, 1) + x(1, 1))
    topic.commit(numbered(0, 3))
    topic.settled(p0=2, p1=0)
    with topic.stream() as stream:
        assert stream.step() == [Seen(0, 0, b"1")]
        assert stream.step() is None
        assert topic.batch() == [Seen(0, 0, b"1")]
        assert topic.batch(**{"kafka.isolation.level": "read_uncommitted"})[-1].value == b"x"
        first.commit()
        topic.settled(p0=3, p1=0)
        assert stream.all() == [Seen(0, 2, b"2")], "it committed later, and is seen then, once"
        second.abort()
        topic.settled()
        assert stream.all() == [Seen(0, 4, b"3")]
    check_all_ways(topic, [Seen(0, 0, b"1"), Seen(0, 2, b"2"), Seen(0, 4, b"3")])


def test_lag_against_the_last_stable_offset_and_against_the_high_watermark(topic: Topic) -> None:
    topic.commit(numbered(0, 1))
    waiting = topic.open(x(0, 4))
    topic.settled(p0=2)
    with topic.stream() as stream:
        stream.step()
        assert stream.offsets == {topic.name: {"0": 2, "1": 0}}
        told = {topic.name: {"0": 6, "1": 0}, f"{topic.name} (last stable)": {"0": 2}}
        assert stream.reader.reportLatestOffset() == told
        waiting.abort()
        topic.settled()
        assert stream.reader.reportLatestOffset() == {topic.name: {"0": 7, "1": 0}}


def test_an_end_beyond_what_is_stable_is_answered_at_once_with_who_holds_it(topic: Topic) -> None:
    waiting = topic.open(x(0, 4))
    topic.settled(p0=0)
    with pytest.raises(PlanError, match=r"its last stable offset is 0: producer \d+ has a transaction open since off"):
        topic.batch(endingOffsets=topic.range_json(p0=3, p1=0))
    waiting.abort()
    topic.settled()
    assert topic.batch(endingOffsets=topic.range_json(p0=3, p1=0)) == []


def test_interleaved_transactions_of_many_producers(world: World) -> None:
    """Batches of up to four producers stand in turns; some commit, some abort, one is left open at the end."""
    chance = random.Random(8)
    topic = world.topic(3)
    open_ones: dict[OpenTransaction, list[tuple[int, bytes]]] = {}
    committed: list[bytes] = []
    for number in range(40):
        if len(open_ones) == 4 or (open_ones and chance.random() < 0.4):
            ending = chance.choice(list(open_ones))
            records = open_ones.pop(ending)
            if chance.random() < 0.5:
                ending.commit()
                committed += [value for _, value in records]
            else:
                ending.abort()
        else:
            records = [(chance.randrange(3), b"%d.%d" % (number, i)) for i in range(chance.randrange(1, 6))]
            open_ones[topic.open(records)] = records
    for ending in open_ones:
        ending.abort()
    found = topic.settled().batch()
    assert sorted(values(found), key=str) == sorted(committed, key=str)
    check_all_ways(topic, found)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(topic: Topic, codec: str) -> None:
    expected = [(number % 2, b"%04d" % number * 20) for number in range(300)]
    topic.plain(expected, **{"compression.type": codec})
    assert sorted(values(topic.batch())) == [value for _, value in expected]
    assert len(topic.batch(startingOffsets=topic.range_json(p0=20, p1=149), minPartitions="5")) == 131
    with topic.stream(maxRecordsPerTrigger="70").available_now() as stream:
        assert len(stream.all()) == 300
        assert max(stream.sizes) <= 70


def test_keys_headers_nulls_and_times_of_both_kinds(world: World) -> None:
    headers = [("trace", b"\x00\xff"), ("trace", None), ("ünï", b"")]
    created, appended = world.topic(1), world.topic(1, message_timestamp_type="LogAppendTime")
    for one in (created, appended):
        one.commit([(0, b"v")], key=b"k", timestamp=1_700_000_000_123, headers=headers)
        one.commit([(0, None)], key=b"", timestamp=1_700_000_000_456)
        one.commit([(0, b"")], timestamp=1_600_000_000_001)
        one.settled()
    rows = created.rows(includeHeaders="true")
    assert [(row["key"], row["value"], row["topic"], row["partition"], row["offset"]) for row in rows] == [
        (b"k", b"v", created.name, 0, 0),
        (b"", None, created.name, 0, 2),
        (None, b"", created.name, 0, 4),
    ]
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [
        1_700_000_000_123,
        1_700_000_000_456,
        1_600_000_000_001,
    ]
    assert [row["timestampType"] for row in rows] == [0, 0, 0]
    assert [(header["key"], header["value"]) for header in rows[0]["headers"]] == headers
    assert rows[1]["headers"] is None
    for row in appended.rows():
        assert row["timestampType"] == 1
        assert row["timestamp"].year >= 2026


def test_a_compacted_topic_with_holes_inside_of_batches(world: World) -> None:
    quick = {"min_cleanable_dirty_ratio": "0.01", "segment_ms": "100", "delete_retention_ms": "0"}
    topic = world.topic(1, cleanup_policy="compact", **quick)
    topic.plain([(0, b"k%d old" % number) for number in range(12)], keyed=True)
    topic.abort_keyed(b"k5 aborted")
    topic.plain([(0, b"k%d new" % number) for number in (0, 1, 2, 6, 7, 11)], keyed=True)

    def cleaned() -> bool:
        topic.plain([(0, b"roll")], keyed=True)
        found = list(values(topic.settled().batch()))
        return b"k0 old" not in found and b"k11 old" not in found and found.count(b"roll") < 3

    until(cleaned, what="compaction")
    found = topic.batch()
    kept = [value for value in values(found) if value != b"roll"]
    assert kept == [b"k%d old" % n for n in (3, 4, 5, 8, 9, 10)] + [b"k%d new" % n for n in (0, 1, 2, 6, 7, 11)]
    check_all_ways(topic, found, vanishing=b"roll")


def test_times_turn_into_offsets_and_a_record_above_the_last_stable_offset_is_waited_for(world: World) -> None:
    topic = world.topic(1)
    begin_ms = (int(time.time()) + 600) * 1000  # later than the markers, which have the time of day

    def at(after_ms: int) -> str:
        return str(begin_ms + after_ms)

    for number in range(3):
        topic.commit(numbered(0, number), timestamp=begin_ms + 1000 * number)
    waiting = topic.open(numbered(0, 9), timestamp=begin_ms + 9000)
    topic.settled(p0=6)
    assert topic.batch(startingTimestamp=at(500), endingTimestamp=at(1500)) == [Seen(0, 2, b"1")]
    assert topic.batch(startingOffsetsByTimestamp=topic.range_json(p0=begin_ms + 2000)) == [Seen(0, 4, b"2")]
    with pytest.raises(PlanError, match="no record has the starting time"):
        topic.batch(startingTimestamp=at(9999))
    assert topic.batch(startingTimestamp=at(9999), startingOffsetsByTimestampStrategy="latest") == []
    with topic.stream(startingTimestamp=at(8000)) as stream:
        assert stream.step() is None
        waiting.commit()
        topic.settled()
        assert stream.all() == [Seen(0, 6, b"9")]


def test_deleted_records_are_data_loss_or_are_left_out(topic: Topic) -> None:
    for number in range(5):
        topic.commit(numbered(0, number))
    topic.settled()
    with topic.stream(maxRecordsPerTrigger="1", failOnDataLoss="false") as patient, topic.stream() as strict:
        assert patient.step() == [Seen(0, 0, b"0")]
        (deleted,) = topic.world.admin.delete_records([confluent.TopicPartition(topic.name, 0, 6)]).values()
        deleted.result(DEADLINE_SECONDS)
        rest = [Seen(0, 6, b"3"), Seen(0, 8, b"4")]
        assert topic.batch() == rest
        assert patient.all() == rest
        with pytest.raises(DataLossError, match="begins at offset 6: records from 0 on were deleted"):
            strict.step()


def test_a_topic_that_is_deleted_and_created_again_under_a_running_query(world: World) -> None:
    topic, other = world.topic(1), world.topic(1)
    topic.commit(numbered(0, 1))
    other.commit(numbered(0, 2))
    topic.settled(), other.settled()
    both = {"subscribe": f"{topic.name},{other.name}"}
    with topic.stream(**both) as strict, topic.stream(**both, failOnDataLoss="false") as patient:
        for stream in (strict, patient):
            assert sorted(values(stream.all())) == [b"1", b"2"]
        topic.world.admin.delete_topics([topic.name])[topic.name].result(DEADLINE_SECONDS)
        until(lambda: topic.partitions() == [], what="the topic's end")
        with pytest.raises(DataLossError, match=f"{topic.name}-0 does not exist any more"):
            strict.step()
        assert patient.step() == []
        other.commit(numbered(0, 3))
        other.settled()
        assert list(values(patient.all())) == [b"3"]
        again = world.topic(1, name=topic.name)
        again.commit(numbered(0, 4))
        again.settled()
        assert list(values(patient.all())) == [b"4"]


def test_a_topic_created_again_between_two_triggers_is_noticed_by_its_id(world: World) -> None:
    topic = world.topic(1)
    topic.commit(numbered(0, 1))
    topic.settled()
    with topic.stream() as strict, topic.stream(failOnDataLoss="false") as patient:
        assert [list(values(stream.all())) for stream in (strict, patient)] == [[b"1"], [b"1"]]
        world.admin.delete_topics([topic.name])[topic.name].result(DEADLINE_SECONDS)
        until(lambda: topic.partitions() == [], what="the topic's end")
        again = world.topic(1, name=topic.name)
        again.commit(numbered(0, *range(10, 15)))
        again.settled()
        with pytest.raises(DataLossError, match="was deleted and created again"):
            strict.step()
        assert sorted(values(patient.all())) == [b"10", b"11", b"12", b"13", b"14"]


def test_partitions_and_topics_that_come_while_a_query_runs(world: World) -> None:
    topic = world.topic(1)
    topic.commit(numbered(0, 1))
    topic.settled()
    pattern = {"subscribePattern": f"{topic.name}.*", "maxRecordsPerTrigger": "2"}
    with topic.stream(**pattern) as stream, topic.stream(**pattern).available_now() as bounded:
        assert list(values(stream.all())) == [b"1"]
        module = pytest.importorskip("confluent_kafka.admin")
        grown = world.admin.create_partitions([module.NewPartitions(topic.name, 3)])
        grown[topic.name].result(DEADLINE_SECONDS)
        until(lambda: topic.partitions() == [0, 1, 2], what="the new partitions")
        another = world.topic(1, name=f"{topic.name}-more")
        until(lambda: another.name in topic._asked(lambda cluster: cluster.topics(None)), what="the new topic")
        world.forget_producers()
        topic.commit(numbered(0, 2) + numbered(1, 3, 4, 5) + numbered(2, 6))
        another.commit(numbered(0, 7))
        topic.settled(), another.settled()
        assert sorted(values(stream.all())) == [b"2", b"3", b"4", b"5", b"6", b"7"]
        assert list(values(bounded.all())) == [b"1"], "what came after its beginning is for the next run"


def test_a_group_is_told_how_far_the_query_is(topic: Topic) -> None:
    topic.commit(numbered(0, 1) + numbered(1, 2))
    topic.abort(x(1, 3))
    topic.settled()
    group = f"{topic.name}-lag"
    asking = confluent.Consumer({"bootstrap.servers": topic.world.bootstrap, "group.id": group})
    where = [confluent.TopicPartition(topic.name, partition) for partition in (0, 1)]
    try:
        with topic.stream(commitGroup=group) as stream:
            stream.all()
            assert stream.offsets == {topic.name: {"0": 2, "1": 6}}
        assert [found.offset for found in asking.committed(where, DEADLINE_SECONDS)] == [2, 6]
    finally:
        asking.close()


_TIMED, _SPAN_MS = "source-ab", 5


@pytest.fixture(scope="module")
def timed(world: World) -> Topic:
    """Transactions whose times go back and forth, some aborted, and an open one."""
    topic = world.topic(2, _TIMED)
    chosen = random.Random(8)
    for number in range(24):
        records = [(chosen.randrange(2), chosen.choice((b"", b"x", b"y"))) for _ in range(chosen.randint(1, 3))]
        begun = topic.open(records, timestamp=BASE_MS + chosen.randint(0, _SPAN_MS))
        begun.abort() if number % 5 == 4 else begun.commit()
    end = topic.settled().ends(IsolationLevel.READ_COMMITTED)[0]
    topic.open([(0, b"x")], timestamp=BASE_MS)
    topic.settled(p0=end)
    return topic


@settings(max_examples=40, deadline=None)
@given(wanted=filters([_TIMED], 2, 40, _SPAN_MS))
def test_filters_that_are_pushed_down_change_no_row(timed: Topic, wanted: list[Filter]) -> None:
    assert timed.filtered(wanted) == meeting(timed.rows(), wanted)
    uncommitted = {"kafka.isolation.level": "read_uncommitted", "maxRecordsPerPartition": "10"}
    assert timed.filtered(wanted, **uncommitted) == meeting(timed.rows(**uncommitted), wanted)
