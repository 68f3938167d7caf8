"""How the ranges of a plan are divided into tasks: minPartitions and maxRecordsPerPartition."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.source.planner import split
from fencepost.spark_connector.source.ranges import OffsetRange

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RANGES = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 2000)), min_size=1, max_size=5).map(
    lambda pairs: [OffsetRange(TopicPartition("t", i), first, first + size) for i, (first, size) in enumerate(pairs)]
)


def test_a_range_is_one_task_unless_more_are_wanted() -> None:
    whole = [OffsetRange(T0, 0, 10), OffsetRange(T1, 5, 6)]
    assert split(whole, None, None) == split(whole, 2, 10) == whole
    assert split(whole, None, 5) == [OffsetRange(T0, 0, 5), OffsetRange(T0, 5, 10), OffsetRange(T1, 5, 6)]


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
