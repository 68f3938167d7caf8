"""Planning against a cluster made of numbers: where a query starts and ends, and what is gone."""

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.cluster import Cluster, OpenTransaction
from fencepost.spark_connector.options import Mode, parse_options
from fencepost.spark_connector.planner import OffsetRange, PlanError, Planner, split
from fencepost.spark_connector.reader import DataLoss
from fencepost.spark_connector.wire import Address
from tests.spark.fake_broker import FakeBroker, FakeLog

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

    def leaders_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Address]:
        return dict.fromkeys(partitions, LEADER)

    def open_transaction(self, tp: TopicPartition) -> OpenTransaction | None:
        return self.holder


def planner(
    parts: dict[TopicPartition, Part], mode: Mode = Mode.BATCH, holder: OpenTransaction | None = None, **options: str
) -> Planner:
    given = {"kafka.bootstrap.servers": "b:1", **options}
    if not {"assign", "subscribePattern"} & given.keys():
        given["subscribe"] = "t"
    return Planner(parse_options(given, mode), Numbers(parts, holder))  # type: ignore[arg-type]


def work(plan: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(found.tp.partition, found.start, found.stop) for found in plan]


def test_a_batch_ends_at_the_last_stable_offset_of_its_planning() -> None:
    parts = {T0: Part(5, 50, 80), T1: Part(0, 7), T2: Part(3, 3)}
    plan = planner(parts).batch()
    assert plan == [OffsetRange(T0, 5, 50, LEADER), OffsetRange(T1, 0, 7, LEADER)]
    assert work(planner(parts, isolation="read_uncommitted").batch()) == [(0, 5, 80), (1, 0, 7)]


def test_asking_for_more_than_is_stable_is_answered_at_once_with_who_holds_it() -> None:
    parts = {T0: Part(0, 50, 80)}
    asks = {"endingOffsets": '{"t": {"0": 60}}'}
    with pytest.raises(PlanError, match=r"to 60, but its last stable offset is 50: producer 7000 has a .* offset 51"):
        planner(parts, holder=OpenTransaction(7000, 51), **asks).batch()
    with pytest.raises(PlanError, match="up to 60, but its last stable offset is 50: an open transaction"):
        planner(parts, **asks).batch()
    with pytest.raises(PlanError, match="up to 90, but it is written only up to 80"):
        planner(parts, endingOffsets='{"t": {"0": 90}}').batch()
    assert work(planner(parts, endingOffsets='{"t": {"0": 50}}').batch()) == [(0, 0, 50)]
    assert work(planner(parts, isolation="read_uncommitted", **asks).batch()) == [(0, 0, 60)]


def test_a_batch_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(PlanError, match="starts at offset 9 of t-0, but ends at 5"):
        planner({T0: Part(0, 50)}, startingOffsets='{"t":{"0":9}}', endingOffsets='{"t":{"0":5}}').batch()


def test_a_batch_that_starts_among_undecided_records_is_empty_and_beyond_them_is_data_loss() -> None:
    assert planner({T0: Part(0, 50, 80)}, startingOffsets='{"t":{"0":60}}').batch() == []
    with pytest.raises(DataLoss, match="ends at offset 50, but was read up to 90"):
        planner({T0: Part(0, 50, 80)}, startingOffsets='{"t":{"0":90}}').batch()


def test_offsets_must_name_the_partitions_that_are_read_and_no_others() -> None:
    parts = {T0: Part(0, 5), T1: Part(0, 5)}
    with pytest.raises(PlanError, match="startingOffsets leaves out t-1; startingOffsets names t-2"):
        planner(parts, startingOffsets='{"t": {"0": 1, "2": 1}}').batch()
    marks = planner(parts, startingOffsets='{"t": {"0": -2, "1": 3}}', endingOffsets='{"t": {"0": 4, "1": -1}}')
    assert work(marks.batch()) == [(0, 0, 4), (1, 3, 5)]


def test_subscriptions_choose_topics_by_list_by_whole_name_and_by_partition() -> None:
    other = TopicPartition("tt", 0)
    parts = {T0: Part(), T1: Part(), other: Part()}
    assert planner(parts).partitions() == [T0, T1]
    assert planner(parts, subscribePattern="t").partitions() == [T0, T1]
    assert planner(parts, subscribePattern="t+").partitions() == [T0, T1, other]
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
    with pytest.raises(PlanError, match=r"no record is as young as the starting time in t-0 \(101\)"):
        planner(parts, startingTimestamp="101").starting()
    found = planner(parts, startingTimestamp="101", startingOffsetsByTimestampStrategy="latest").starting()
    assert found == {T0: 50}


def test_a_time_whose_record_is_not_decided_yet_starts_there_and_ends_at_the_last_stable_offset() -> None:
    parts = {T0: Part(0, 50, 80, times=((100, 10), (200, 60)))}
    stream = planner(parts, Mode.STREAM, startingTimestamp="150")
    assert stream.starting() == {T0: 60}
    assert stream.not_before({T0: 60}, stream.latest()) == {T0: 60}
    assert planner(parts, startingTimestamp="150").batch() == []
    assert planner(parts, endingTimestamp="150").ending() == {T0: 50}


def test_a_stream_that_is_ahead_of_the_last_stable_offset_waits_for_it() -> None:
    parts = {T0: Part(0, 50, 80), T1: Part(0, 9)}
    stream = planner(parts, Mode.STREAM)
    assert stream.latest() == {T0: 50, T1: 9}
    assert stream.not_before({T0: 70, T1: 5}, stream.latest()) == {T0: 70, T1: 9}
    assert stream.not_before({T0: 81, T1: 5}, stream.latest()) == {T0: 50, T1: 9}
    assert stream.high_watermarks() == {T0: 80, T1: 9}


def test_new_partitions_are_read_from_their_first_record_on() -> None:
    stream = planner({T0: Part(0, 50), T1: Part(0, 9)}, Mode.STREAM)
    assert work(stream.ranges({T0: 40}, {T0: 50, T1: 9})) == [(0, 40, 50), (1, 0, 9)]


@pytest.mark.parametrize(
    ("parts", "start", "end", "reason", "rest"),
    [
        ({T0: Part(20, 50)}, {T0: 10}, {T0: 50}, "begins at offset 20: records from 10 on are gone", [(0, 20, 50)]),
        ({T0: Part(60, 70)}, {T0: 10}, {T0: 50}, "begins at offset 60", []),
        ({T0: Part(0, 5)}, {T0: 10}, {T0: 5}, "ends at offset 5, but was read up to 10", [(0, 0, 5)]),
        ({T0: Part(0, 5)}, {T0: 0, T1: 9}, {T0: 5}, "t-1 is gone; it was read up to offset 9", [(0, 0, 5)]),
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
    with pytest.raises(DataLoss, match=reason):
        planner(parts, Mode.STREAM).ranges(start, end)
    assert work(planner(parts, Mode.STREAM, failOnDataLoss="false").ranges(start, end)) == rest
    assert reason in caplog.text


def test_a_limit_is_spread_by_the_backlog_of_the_partitions() -> None:
    stream = planner({T0: Part(0, 900), T1: Part(0, 100), T2: Part(0, 5)}, Mode.STREAM, isolation="read_uncommitted")
    end = {T0: 900, T1: 100, T2: 5}
    assert stream.limited({T0: 0, T1: 0, T2: 5}, end, 100) == {T0: 90, T1: 10, T2: 5}
    assert stream.limited({T0: 0, T1: 0, T2: 0}, end, 2000) == end
    assert stream.limited({T0: 0, T1: 0, T2: 0}, end, 1) == {T0: 1, T1: 1, T2: 1}


def test_a_limit_counts_what_read_committed_sees() -> None:
    """Markers and aborted records take nothing from maxOffsetsPerTrigger, so that no micro-batch is empty for them."""
    log = FakeLog().aborted_run(1, *[b"x"] * 50).data(b"a", b"b", b"c").aborted_run(2, b"x").data(b"d", b"e", b"f")
    log.marker(9, True)
    with FakeBroker({T0: log}) as broker:
        cluster = Cluster(broker.settings())
        address = str(broker.address)
        options = parse_options({"kafka.bootstrap.servers": address, "subscribe": "t"}, Mode.STREAM)
        stream = Planner(options, cluster)
        position, ends = {T0: 0}, []
        while position != {T0: log.end}:
            position = stream.limited(position, {T0: log.end}, 2)
            ends.append(position[T0])
        cluster.close()
    assert log.end == 60
    assert ends == [53, 57, 60]


RANGES = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 2000)), min_size=1, max_size=5).map(
    lambda pairs: [OffsetRange(TopicPartition("t", i), first, first + size) for i, (first, size) in enumerate(pairs)]
)


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 500))
def test_the_pieces_of_a_plan_cover_it_once_and_keep_both_promises(
    plan: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    pieces = split(plan, min_partitions, max_records)
    for found in plan:
        mine = [piece for piece in pieces if piece.tp == found.tp]
        assert (mine[0].start, mine[-1].stop) == (found.start, found.stop)
        assert all(a.stop == b.start for a, b in itertools.pairwise(mine))
    assert all(piece.start < piece.stop for piece in pieces)
    if max_records is not None:
        assert all(piece.stop - piece.start <= max_records for piece in pieces)
    if min_partitions is not None:
        assert len(pieces) >= min(min_partitions, sum(found.stop - found.start for found in plan))
    if min_partitions is None and max_records is None:
        assert pieces == plan
