"""What has become of the records of a share partition, range by range: for tools that show it."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fencepost.broker.share.in_flight import NO_LOCK, TX_PENDING, InFlightState
from fencepost.broker.share.window import Window
from fencepost.coordinator.share.values import DeliveryState, StoredState

NO_PRODUCER = -1


class StateRange(NamedTuple):
    """Records in the same state, from `first_offset` to `last_offset`, both included."""

    first_offset: int
    last_offset: int
    state: DeliveryState
    delivery_count: int
    member_id: str = ""
    """Who holds them; empty if no member does."""
    lock_ms: int = NO_LOCK
    """How long that member still holds them, in ms; for how long available ones are still held back."""
    producer_id: int = NO_PRODUCER
    """Whose open transaction decides on TX_PENDING records."""


def ranges(window: Window, now_ms: int) -> Iterator[StateRange]:
    """The records in flight in offset order. What lies between two ranges is available, and was never delivered.

    While the end of a delivery is being stored, the member still holds the records: it could not be stored yet.
    """
    return _joined(_parts(window, now_ms))


def stored_ranges(stored: StoredState, wall_ms: int) -> list[StateRange]:
    """The same of a share partition that no member uses now; `wall_ms` is the time, in ms since the epoch."""

    def producer_of(offset: int) -> int:
        """Whose transaction acknowledged the record."""
        return next(
            (producer_id for producer_id, one in stored.pending if one.first_offset <= offset <= one.last_offset),
            NO_PRODUCER,
        )

    found = [
        StateRange(first, last, DeliveryState(state), count, lock_ms=until - wall_ms if until > wall_ms else NO_LOCK)
        for first, last, state, count, until in stored.batches
    ]
    return [
        one._replace(producer_id=producer_of(one.first_offset)) if one.state is TX_PENDING else one for one in found
    ]


def _parts(window: Window, now_ms: int) -> Iterator[StateRange]:
    for batch in window.batches:
        if batch.last < window.start:
            continue
        if batch.offsets is None:
            yield _range(max(batch.first, window.start), batch.last, batch.whole, now_ms)
            continue
        for offset in range(max(batch.first, window.start), batch.last + 1):
            yield _range(offset, offset, batch.at(offset), now_ms)


def _range(first: int, last: int, state: InFlightState, now_ms: int) -> StateRange:
    shown, member_id = (state.state, state.member_id) if state.undo is None else state.undo[:2]
    if state.at_commit is not None:
        return StateRange(first, last, state.state, state.deliveries, producer_id=state.at_commit.producer_id)
    lock_ms = NO_LOCK if state.lock < 0 else max(state.lock - now_ms, 0)
    return StateRange(first, last, shown, state.deliveries, member_id, lock_ms)


def _joined(parts: Iterable[StateRange]) -> Iterator[StateRange]:
    """Neighbours alike as one."""
    before: StateRange | None = None
    for part in parts:
        if before is not None and (before.last_offset + 1, *before[2:]) == (part.first_offset, *part[2:]):
            before = before._replace(last_offset=part.last_offset)
            continue
        if before is not None:
            yield before
        before = part
    if before is not None:
        yield before
