"""Planning against a cluster made of numbers: where a query starts and ends, and what is gone."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest

from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.network.cluster import Cluster, OpenTransaction
from fencepost.spark_connector.network.wire import Address
from fencepost.spark_connector.offsets import Position
from fencepost.spark_connector.source.options import Mode, parse_options
from fencepost.spark_connector.source.planner import PlanError, Planner
from fencepost.spark_connector.source.ranges import OffsetRange
from fencepost.spark_connector.source.reader import DataLossError
from fencepost.spark_connector.source.scan import Limit
from fencepost.spark_connector.source.sources import Brokers
from tests.kit.batch_log import BatchLog
from tests.kit.spark_broker import FakeBroker

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
LEADER = Address("b", 1)


@dataclass
class Part:
    """A partition: what it holds and how far; `times` are (epoch ms, offset)."""

    first: int = 0
    stable: int = 0
    end: int | None = None
    times: tuple[tuple[int, int], ...] = ()


@dataclass
class Numbers:
    """Answers like a Cluster, from a table."""

    parts: dict[TopicPartition, Part]
    holder: OpenTransaction | None = None
    calls: list[Mapping[TopicPartition, int]] = field(default_factory=list)
    topic_ids: dict[str, bytes] = field(default_factory=dict)

    def topics(self, names: Collection[str] | None) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for tp in sorted(self.parts):
            if names is None or tp.topic in names:
                found[tp.topic] = (*found.get(tp.topic, ()), tp.partition)
        return found

    def list_offsets(self, asked: Mapping[TopicPartition, int], isolation: IsolationLevel) -> dict[TopicPartition, int]:
        found = {}
        for tp, time_ms in asked.items():
            part = self.parts[tp]
            end = part.stable
            if isolation is IsolationLevel.READ_UNCOMMITTED and part.end is not None:
                end = part.end
            late = [offset for stamp, offset in part.times if stamp >= time_ms and offset < end]
            found[tp] = {-1: end, -2: part.first}.get(time_ms, min(late, default=-1))
        return found

    def located(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        return [one._replace(leader=LEADER) for one in ranges]

    def open_transaction(self, tp: TopicPartition) -> OpenTransaction | None:
        return self.holder


UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}


def planner(
    parts: dict[TopicPartition, Part], mode: Mode = Mode.BATCH, holder: OpenTransaction | None = None, **options: str
) -> Planner:
    given = {"kafka.bootstrap.servers": "b:1", **options}
    if not {"assign", "subscribePattern"} & given.keys():
        given.setdefault("subscribe", "t")
    return Planner(parse_options(given, mode), Numbers(parts, holder))  # type: ignore[arg-type]


def work(plan: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(found.tp.partition, found.start, found.stop) for found in plan]


def test_a_batch_ends_at_the_last_stable_offset_of_its_planning() -> None:
    parts = {T0: Part(5, 50, 80), T1: Part(0, 7), T2: Part(3, 3)}
    plan = planner(parts).batch()
    assert plan == [OffsetRange(T0, 5, 50, LEADER), OffsetRange(T1, 0, 7, LEADER)]
    assert work(planner(parts, **UNCOMMITTED).batch()) == [(0, 5, 80), (1, 0, 7)]


def test_asking_for_more_than_is_stable_is_answered_at_once_with_who_holds_it() -> None:
    parts = {T0: Part(0, 50, 80)}
    asks = {"endingOffsets": '{"t": {"0": 60}}'}
    with pytest.raises(PlanError, match=r"to 60, but its last stable offset is 50: producer 7000 has a .* offset 51"):
        planner(parts, holder=OpenTransaction(7000, 51), **asks).batch()
    with pytest.raises(PlanError, match="up to 60, but its last stable offset is 50: an open transaction"):
        planner(parts, **asks).batch()
    with pytest.raises(PlanError, match="up to 90, but its high watermark is 80"):
        planner(parts, endingOffsets='{"t": {"0": 90}}').batch()
    assert work(planner(parts, endingOffsets='{"t": {"0": 50}}').batch()) == [(0, 0, 50)]
    assert work(planner(parts, **UNCOMMITTED, **asks).batch()) == [(0, 0, 60)]


def test_a_batch_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(PlanError, match="starts at offset 9 of t-0, but ends at 5"):
        planner({T0: Part(0, 50)}, startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"0":5}}').batch()


@pytest.mark.parametrize("mode", [Mode.BATCH, Mode.STREAM])
def test_starting_offsets_lie_among_undecided_records_but_not_beyond_them(
    mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    def starting(offset: int, **options: str) -> Planner:
        return planner({T0: Part(0, 50, 80)}, mode, startingOffsets=f'{{"t":{{"0":{offset}}}}}', **options)

    assert starting(60).starting() == {T0: 60}
    assert starting(80).starting() == {T0: 80}
    with pytest.raises(PlanError, match="startingOffsets asks for t-0 from 81 on, but its high watermark is 80"):
        starting(81).starting()
    assert starting(81, failOnDataLoss="false").starting() == {T0: 80}
    assert "the query starts there" in caplog.text


def test_a_batch_that_starts_among_undecided_records_is_empty() -> None:
    assert planner({T0: Part(0, 50, 80)}, startingOffsets='{"t":{"0":60}}').batch() == []


def test_offsets_must_name_the_partitions_that_are_read_and_no_others() -> None:
    parts = {T0: Part(0, 5), T1: Part(0, 5)}
    with pytest.raises(PlanError, match="startingOffsets lacks t-1; startingOffsets names t-2"):
        planner(parts, startingOffsets='{"t": {"0": 1, "2": 1}}').batch()
    marks = planner(parts, startingOffsets='{"t": {"0": -2, "1": 3}}', endingOffsets='{"t": {"0": 4, "1": -1}}')
    assert work(marks.batch()) == [(0, 0, 4), (1, 3, 5)]


def test_subscriptions_choose_topics_by_list_by_pattern_and_by_partition() -> None:
    """A pattern is found anywhere in a name, as in Spark 4."""
    other = TopicPartition("tt", 0)
    parts = {T0: Part(), T1: Part(), other: Part()}
    assert planner(parts).partitions() == [T0, T1]
    assert planner(parts, subscribePattern="t").partitions() == [T0, T1, other]
    assert planner(parts, subscribePattern="^t$").partitions() == [T0, T1]
    assert planner(parts, subscribePattern="t{2}").partitions() == [other]
    assert planner(parts, assign='{"t": [1]}').partitions() == [T1]
    with pytest.raises(PlanError, match="no partition t-5"):
        planner(parts, assign='{"t": [0, 5]}').partitions()
    with pytest.raises(PlanError, match="no topic t "):
        planner({other: Part()}).partitions()


def test_times_are_turned_into_the_first_record_that_is_as_young() -> None:
    parts = {T0: Part(0, 50, times=((100, 10), (200, 20))), T1: Part(0, 30, times=((150, 5),))}
    found = planner(parts, startingTimestamp="120", endingTimestamp="180")
    assert (found.starting(), found.ending()) == ({T0: 20, T1: 5}, {T0: 20, T1: 30})
    each = planner(parts, startingOffsetsByTimestamp='{"t": {"0": 50, "1": 120}}')
    assert each.starting() == {T0: 10, T1: 5}


def test_without_a_record_that_young_the_strategy_decides() -> None:
    parts = {T0: Part(0, 50, times=((100, 10),))}
    with pytest.raises(PlanError, match=r"no record has the starting time or a later one in t-0 \(101\)"):
        planner(parts, startingTimestamp="101").starting()
    found = planner(parts, startingTimestamp="101", startingOffsetsByTimestampStrategy="latest").starting()
    assert found == {T0: 50}


def test_a_time_whose_record_is_not_decided_yet_starts_there_and_ends_at_the_last_stable_offset() -> None:
    parts = {T0: Part(0, 50, 80, times=((100, 10), (200, 60)))}
    stream = planner(parts, Mode.STREAM, startingTimestamp="150")
    assert stream.starting() == {T0: 60}
    assert stream.not_before({T0: 60}, stream.latest().offsets) == {T0: 60}
    assert planner(parts, startingTimestamp="150").batch() == []
    assert planner(parts, endingTimestamp="150").ending() == {T0: 50}


def test_a_stream_that_is_ahead_of_the_last_stable_offset_waits_for_it() -> None:
    parts = {T0: Part(0, 50, 80), T1: Part(0, 9)}
    stream = planner(parts, Mode.STREAM)
    assert stream.latest().offsets == {T0: 50, T1: 9}
    assert stream.not_before({T0: 70, T1: 5}, stream.latest().offsets) == {T0: 70, T1: 9}
    assert stream.not_before({T0: 81, T1: 5}, stream.latest().offsets) == {T0: 50, T1: 9}
    assert stream.high_watermarks() == {T0: 80, T1: 9}


@pytest.mark.parametrize(("read", "ends"), [(79, 79), (80, 80), (81, 50)])
def test_a_stream_that_has_read_up_to_exactly_the_high_watermark_was_not_reset(read: int, ends: int) -> None:
    """It read uncommitted before: up to the high watermark the log can be the same one, above it cannot."""
    stream = planner({T0: Part(0, 50, 80)}, Mode.STREAM)
    assert stream.not_before({T0: read}, stream.latest().offsets) == {T0: ends}


def test_new_partitions_are_read_from_their_first_record_on() -> None:
    stream = planner({T0: Part(0, 50), T1: Part(0, 9)}, Mode.STREAM)
    assert work(stream.ranges(Position({T0: 40}), Position({T0: 50, T1: 9}))) == [(0, 40, 50), (1, 0, 9)]


@pytest.mark.parametrize(
    ("parts", "start", "end", "reason", "rest"),
    [
        ({T0: Part(20, 50)}, {T0: 10}, {T0: 50}, "begins at offset 20: records from 10 on were deleted", [(0, 20, 50)]),
        ({T0: Part(60, 70)}, {T0: 10}, {T0: 50}, "begins at offset 60", []),
        ({T0: Part(0, 5)}, {T0: 10}, {T0: 5}, "ends at offset 5, but was read up to 10", [(0, 0, 5)]),
        (
            {T0: Part(0, 5)},
            {T0: 0, T1: 9},
            {T0: 5},
            "t-1 does not exist any more; it was read up to offset 9",
            [(0, 0, 5)],
        ),
        ({T0: Part(0, 5), T1: Part(3, 8)}, {T0: 5}, {T0: 5, T1: 8}, "new, but begins at offset 3", [(1, 3, 8)]),
    ],
)
def test_what_the_log_no_longer_holds_is_data_loss_or_a_warning(
    parts: dict[TopicPartition, Part],
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    reason: str,
    rest: list[tuple[int, int, int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(DataLossError, match=reason):
        planner(parts, Mode.STREAM).ranges(Position(start), Position(end))
    assert work(planner(parts, Mode.STREAM, failOnDataLoss="false").ranges(Position(start), Position(end))) == rest
    assert reason in caplog.text


@pytest.mark.parametrize("options", [{}, UNCOMMITTED])
def test_a_limit_of_offsets_is_in_proportion_to_the_backlog_as_with_sparks_kafka_source(
    options: dict[str, str],
) -> None:
    stream = planner({T0: Part(0, 900), T1: Part(0, 100), T2: Part(0, 5)}, Mode.STREAM, **options)
    end = {T0: 900, T1: 100, T2: 5}
    assert stream.rate_limited({T0: 0, T1: 0, T2: 5}, end, 100) == {T0: 90, T1: 10, T2: 5}
    assert stream.rate_limited({T0: 0, T1: 0, T2: 0}, end, 2000) == end
    assert stream.rate_limited({T0: 0, T1: 0, T2: 0}, end, 1) == {T0: 1, T1: 1, T2: 1}
    assert stream.rate_limited({T0: 0, T1: 0}, end, 1005) == end, "a new partition counts from its first offset"


def test_a_limit_of_records_counts_what_read_committed_sees() -> None:
    """Markers and aborted records take nothing from maxRecordsPerTrigger, so that no micro-batch is empty for them."""
    log = BatchLog().aborted_run(1, *[b"x"] * 50).data(b"a", b"b", b"c").aborted_run(2, b"x").data(b"d", b"e", b"f")
    log.marker(9, True)
    with FakeBroker({T0: log}) as broker:
        cluster = Brokers(broker.settings())
        address = str(broker.address)
        options = parse_options({"kafka.bootstrap.servers": address, "subscribe": "t"}, Mode.STREAM)
        stream = Planner(options, cluster)
        position, ends = {T0: 0}, []
        while position != {T0: log.end}:
            position = stream.limited(position, {T0: log.end}, Limit(2))
            ends.append(position[T0])
        cluster.close()
    assert log.end == 60
    assert ends == [53, 57, 60]


@contextmanager
def counting(logs: dict[TopicPartition, BatchLog], **options: str) -> Iterator[Planner]:
    """A stream's planner over logs made by hand."""
    with FakeBroker(logs) as broker:
        named = {"kafka.bootstrap.servers": str(broker.address), "subscribe": "t", **options}
        parsed = parse_options(named, Mode.STREAM)
        cluster = Brokers(parsed.connection)
        try:
            yield Planner(parsed, cluster)
        finally:
            cluster.close()


def test_what_a_partition_does_not_use_up_goes_to_the_others() -> None:
    """Nearly all of the backlog is aborted: a limit by the offsets' share would give one record at a time."""
    logs = {T0: BatchLog().aborted_run(1, *[b"x"] * 900), T1: BatchLog()}
    for number in range(60):
        logs[T1].data(b"%d" % number)
    with counting(logs) as stream:
        end = {T0: logs[T0].end, T1: 60}
        assert stream.limited({T0: 0, T1: 0}, end, Limit(50)) == {T0: 901, T1: 50}


def test_bytes_are_counted_as_the_log_holds_them_and_one_record_always_goes() -> None:
    log = BatchLog().aborted_run(1, b"x" * 5000)
    for _ in range(10):
        log.data(b"v" * 1000)
    with counting({T0: log}) as stream:
        start = {T0: 0}
        assert stream.limited(start, {T0: log.end}, Limit(None, 3500)) == {T0: 5}
        assert stream.limited(start, {T0: log.end}, Limit(2, 3500)) == {T0: 4}
        assert stream.limited(start, {T0: log.end}, Limit(None, 1)) == {T0: 3}
        assert stream.limited(start, {T0: log.end}, Limit(None, 1 << 30)) == {T0: log.end}


def test_holes_that_compaction_left_count_for_nothing() -> None:
    kept = [Record(offset, 0, None, b"kept") for offset in (40, 41, 90)]
    log = BatchLog().raw(build_batch(kept, base_offset=0, last_offset_delta=99)).data(b"later")
    with counting({T0: log}) as stream:
        assert [stream.limited({T0: at}, {T0: 101}, Limit(1))[T0] for at in (0, 41, 42, 91)] == [41, 90, 100, 101]
        assert stream.backlog({T0: 0}, {T0: 101}) == 101


def test_what_is_known_to_be_invisible_is_not_given_to_a_task() -> None:
    log = BatchLog().aborted_run(1, *[b"x"] * 50).data(b"a", b"b")
    with counting({T0: log}) as stream:
        end = stream.limited({T0: 0}, {T0: 53}, Limit(1))
        assert end == {T0: 52}
        assert work(stream.ranges(Position({T0: 0}), Position(end))) == [(0, 51, 52)]


def test_a_topic_that_is_gone_ends_a_running_query_or_is_read_no_more() -> None:
    parts = {T0: Part(0, 50), TopicPartition("u", 0): Part(0, 9)}
    for told, expected in [("true", None), ("false", [(0, 40, 50)])]:
        stream = planner(parts, Mode.STREAM, subscribe="t,u", failOnDataLoss=told)
        start = {T0: 40, TopicPartition("u", 0): 5}
        assert stream.latest().offsets == {T0: 50, TopicPartition("u", 0): 9}
        del parts[TopicPartition("u", 0)]
        end = stream.latest().offsets
        assert end == {T0: 50}
        if expected is None:
            with pytest.raises(DataLossError, match="u-0 does not exist any more; it was read up to offset 5"):
                stream.ranges(Position(start), Position(end))
        else:
            assert work(stream.ranges(Position(start), Position(end))) == expected
            assert stream.latest().offsets == {T0: 50}, "and it stays gone"
        parts[TopicPartition("u", 0)] = Part(0, 9)


def test_a_topic_created_again_is_data_loss_even_where_the_new_one_is_longer(caplog: pytest.LogCaptureFixture) -> None:
    """By its offsets alone it looks as if only records were added (KIP-516 brings topic ids)."""
    cluster = Numbers({T0: Part(0, 50), T1: Part(0, 50)}, topic_ids={"t": b"a" * 16})
    named = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    for told in ("true", "false"):
        cluster.parts, cluster.topic_ids = {T0: Part(0, 50), T1: Part(0, 50)}, {"t": b"a" * 16}
        stream = Planner(parse_options({**named, "failOnDataLoss": told}, Mode.STREAM), cast(Cluster, cluster))
        read = stream.latest()
        assert work(stream.ranges(Position({T0: 40, T1: 0}), read)) == [(0, 40, 50), (1, 0, 50)]
        cluster.parts, cluster.topic_ids = {T0: Part(0, 80), T1: Part(0, 50)}, {"t": b"b" * 16}
        end = stream.latest()
        if told == "true":
            with pytest.raises(
                DataLossError, match="topic t was deleted and created again after t-0 was read up to 50"
            ):
                stream.begin(read, end)
            continue
        for _ in range(2):  # a micro-batch may be planned once more
            assert work(stream.ranges(read, end)) == [(0, 0, 80), (1, 0, 50)]
        assert stream.begin(end, end) == end.offsets
        assert "deleted and created again" in caplog.text


@pytest.mark.parametrize(
    ("subscription", "why"),
    [
        ({"subscribe": "t"}, "t-1 does not exist any more"),
        ({"subscribePattern": "t"}, "t-1 does not exist any more"),
        ({"assign": '{"t": [0, 1]}'}, "t-1 does not exist any more"),
        ({"assign": '{"t": [0]}'}, "the query does not subscribe to t-1 any more"),
        ({"subscribe": "u"}, "the query does not subscribe to t-1 any more"),
    ],
)
def test_what_is_not_read_any_more_is_lost_with_the_reason(subscription: dict[str, str], why: str) -> None:
    """A partition is gone, or the query was started again with another subscription."""
    stream = planner({T0: Part(0, 50)}, Mode.STREAM, **subscription)
    with pytest.raises(DataLossError, match=f"{why}; it was read up to offset 7"):
        stream.with_missing(Position({T0: 40, T1: 7}), Position({T0: 50}))


def test_a_planned_partition_that_is_gone_is_named_so_though_its_topic_is_there() -> None:
    """A topic created again with fewer partitions, and one that only lost a partition, say so each."""
    cluster = Numbers({T0: Part(0, 50)}, topic_ids={"t": b"a" * 16})
    stream = Planner(
        parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, Mode.STREAM), cast(Cluster, cluster)
    )
    end = Position({T0: 50, T1: 9}, {"t": (b"a" * 16).hex()})
    with pytest.raises(
        DataLossError, match="t-1 was planned to be read up to offset 9, but it does not exist any more"
    ):
        stream.ranges(end._replace(offsets={T0: 40, T1: 5}), end)
    cluster.topic_ids = {"t": b"b" * 16}
    cluster.parts = {T0: Part(0, 80), T1: Part(0, 80)}
    with pytest.raises(DataLossError, match=r"t-0 was planned .* but topic t was deleted and created again"):
        stream.ranges(end._replace(offsets={T0: 40, T1: 5}), end)
