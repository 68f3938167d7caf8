"""Whatever leaders write, a share partition has the state that each offset's highest priority gives (KIP-932)."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.coordinator.share.batches import combine
from fencepost.coordinator.share.records import Snapshot, Update, decode, encode
from fencepost.coordinator.share.state import ShareRecords, ShareShardState
from fencepost.coordinator.share.values import UNINITIALIZED, ShareKey, StateBatch
from tests.kit.examples import examples

KEY = ShareKey("g", bytes(16), 0)
OFFSETS = st.integers(0, 30)
BATCHES = st.lists(
    st.builds(
        lambda first, more, state, count: StateBatch(first, first + more, state, count),
        OFFSETS,
        st.integers(0, 12),
        st.sampled_from([0, 2, 4]),
        st.integers(0, 3),
    ),
    max_size=8,
)


def priorities(batches: list[StateBatch], start: int) -> dict[int, tuple[int, int]]:
    """The model: count and state of each offset."""
    found: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(max(batch.first_offset, start), batch.last_offset + 1):
            found[offset] = max(found.get(offset, (-1, -1)), (batch.delivery_count, batch.delivery_state))
    return found


def spread(batches: tuple[StateBatch, ...]) -> dict[int, tuple[int, int]]:
    """The same from combined batches, which must not overlap or fall, nor could be fewer."""
    for one, following in pairwise(batches):
        assert one.last_offset < following.first_offset
        assert one.last_offset + 1 < following.first_offset or one[2:] != following[2:]
    return priorities(list(batches), 0)


@given(BATCHES, OFFSETS | st.just(UNINITIALIZED))
@settings(max_examples=examples(300))
def test_combined_batches_are_those_of_each_offset(batches: list[StateBatch], start: int) -> None:
    """PersisterStateBatchCombiner: the highest delivery count, then the highest state, from the start offset on."""
    assert spread(combine(batches, start)) == priorities(batches, start)


@given(st.lists(st.tuples(BATCHES, OFFSETS, st.booleans()), max_size=12))
@settings(max_examples=examples(200))
def test_late_combination_gives_what_combination_at_each_update_gives(
    changes: list[tuple[list[StateBatch], int, bool]],
) -> None:
    """ShareCoordinatorShard.merge combines at each update; here it may wait. Records went through their bytes."""
    machine, state = ShareRecords(500), ShareShardState()
    machine.apply(state, Snapshot(KEY, 0, 0, 0, 0, 0, 0, 0, ()))
    at_once: tuple[StateBatch, ...] = ()
    start = 0
    for batches, wanted, looks in changes:
        start = max(start, wanted)
        record = Update(KEY, 0, 0, start, 0, combine(batches, start))
        assert decode(*encode(record)) == record
        machine.apply(state, record)
        at_once = combine((*at_once, *record.batches), start)
        if looks:
            assert state.shares[KEY].batches == at_once
    assert state.shares[KEY].batches == at_once
