"""Combines the state batches of a share partition: Kafka's PersisterStateBatchCombiner. Pure."""

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import pairwise

from fencepost.coordinator.share.values import UNINITIALIZED, StateBatch


def combine(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches without overlap, in order, as few as possible, and none below `start_offset` (UNINITIALIZED: all).

    Where several cover an offset, the highest delivery count wins, then the highest state. So the result does not
    depend on their order, and combining in several steps gives the same (PersisterStateBatchCombiner.sweepMerge).
    Ours: of two that differ only in the time until which records are held back, the later one.
    """
    kept = [_from(batch, start_offset) for batch in batches if batch.last_offset >= start_offset]
    if len(kept) < 2:
        return tuple(kept)
    kept.sort()
    following = iter(kept)
    begins = next(following, None)
    active: list[tuple[int, int, int, int]] = []
    """Of those that cover the point: count, state and time, negated so that the winner comes first, and the last
    offset."""
    combined: list[StateBatch] = []
    for point, end in pairwise(
        sorted({edge for batch in kept for edge in (batch.first_offset, batch.last_offset + 1)})
    ):
        while begins is not None and begins.first_offset == point:
            _, last, state, count, held_until_ms = begins
            heappush(active, (-count, -state, -held_until_ms, last))
            begins = next(following, None)
        while active and active[0][3] < point:
            heappop(active)
        if active:
            count, state, held_until_ms, _ = active[0]
            StateBatch(point, end - 1, -state, -count, -held_until_ms).add_to(combined)
    return tuple(combined)


def _from(batch: StateBatch, start_offset: int) -> StateBatch:
    below = start_offset != UNINITIALIZED and batch.first_offset < start_offset
    return batch._replace(first_offset=start_offset) if below else batch
