"""The records in flight: batches in offset order, each with one state for all its records or one for each."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from fencepost.coordinator.share.values import DeliveryState

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED, TX_PENDING = DeliveryState
TERMINAL = frozenset({ACKNOWLEDGED, ARCHIVED})
NO_LOCK = -1
EXPIRED = -2
"""A lock that ended while the end of the delivery was being stored."""
_COMPACT = 64


class AtCommit(NamedTuple):
    """What becomes of a record if a transaction commits."""

    producer_id: int
    state: DeliveryState


class InFlightState:
    """What has become of a record, or of all records of a batch (Kafka's InFlightState)."""

    __slots__ = ("at_commit", "deliveries", "lock", "lost", "member_id", "state", "undo")

    def __init__(self, state: DeliveryState, deliveries: int, member_id: str = "", lock: int = NO_LOCK) -> None:
        self.state = state
        self.deliveries = deliveries
        self.member_id = member_id
        self.lock = lock
        """When the member's lock ends; of a record that is AVAILABLE, until when it is held back from all members."""
        self.lost = False
        """Archived whatever was said of it: no transition is rolled back from then on."""
        self.undo: tuple[DeliveryState, str, int, int] | None = None
        """While a transition is being stored: state and member before it, the limit of deliveries at its begin, and
        until when the record is held back after it (NO_LOCK: it is not)."""
        self.at_commit: AtCommit | None = None
        """Set while it is TX_PENDING."""

    def copy(self) -> "InFlightState":
        """The same for other records; a transition that is being stored does not bind them, nor its lock."""
        same = InFlightState(
            self.state, self.deliveries, self.member_id, self.lock if self.undo is None else self.undo[3]
        )
        same.at_commit = self.at_commit
        return same

    @property
    def available(self) -> bool:
        """Whether a member may acquire it now."""
        return self.state is AVAILABLE and self.undo is None and self.lock == NO_LOCK

    @property
    def is_new(self) -> bool:
        """Whether a member may acquire it now for the first time."""
        return self.available and not self.deliveries

    @property
    def held_back(self) -> bool:
        """Whether no member may acquire it before a time."""
        return self.state is AVAILABLE and self.undo is None and self.lock != NO_LOCK

    @property
    def done(self) -> bool:
        """Whether nothing can change it any more."""
        return self.state in TERMINAL and self.undo is None

    def end(self, state: DeliveryState, limit: int, dead_letters: bool) -> None:
        """End its delivery; what was delivered as often as the limit allows is not available again."""
        if state is AVAILABLE and self.deliveries >= limit:
            state = ARCHIVING if dead_letters else ARCHIVED
        self.state = state
        self.member_id = ""

    def begin_end(self, state: DeliveryState, limit: int, dead_letters: bool, held_until: int = NO_LOCK) -> None:
        """End its delivery, to be committed or rolled back; what is available then is held back until a time."""
        before, member_id = self.state, self.member_id
        self.end(state, limit, dead_letters)
        self.undo = before, member_id, limit, held_until if self.state is AVAILABLE else NO_LOCK

    def pend(self, at_commit: AtCommit) -> None:
        """A transaction decides what becomes of it; the lock has no effect from here on."""
        self.state = TX_PENDING
        self.at_commit = at_commit

    def commit(self) -> None:
        """The end of its delivery is stored."""
        undo, self.undo = self.undo, None
        self.lock = NO_LOCK if undo is None or self.lost else undo[3]

    def roll_back(self) -> None:
        """The end of its delivery was not stored: the member holds it again, if its lock has not ended."""
        if self.lost or self.undo is None:
            self.commit()
            return
        self.state, self.member_id, limit, _ = self.undo
        self.undo = None
        if self.lock == EXPIRED:
            self.lock = NO_LOCK
            self.state = ARCHIVED if self.deliveries >= limit else AVAILABLE
            self.member_id = ""

    def archive(self) -> None:
        """The log no longer has the record, or no member is to get it."""
        self.lost = True
        self.state = ARCHIVED
        self.member_id = ""
        self.lock = NO_LOCK


class InFlightBatch:
    """Offsets that were acquired together, gaps of the log included (Kafka's InFlightBatch)."""

    __slots__ = ("done", "due", "first", "last", "most", "offsets", "whole")

    def __init__(self, first: int, last: int, whole: InFlightState) -> None:
        self.first = first
        self.last = first if last == first else last  # one object for both: there may be a million such batches
        self.most = whole.deliveries
        """No record of it was delivered more often."""
        self.whole = whole
        """The state of all offsets, while `offsets` is None; after that, of those that nothing happened to."""
        self.offsets: list[InFlightState] | None = None
        self.done = 0
        """How many of the first entries of `offsets` are known to be done."""
        self.due = NO_LOCK
        """The time at which its locks are looked at next: not after the first that ends."""

    def states(self) -> list[InFlightState]:
        """Its one state, or the state of each offset."""
        return [self.whole] if self.offsets is None else self.offsets

    def at(self, offset: int) -> InFlightState:
        """The state of an offset of the batch."""
        return self.whole if self.offsets is None else self.offsets[offset - self.first]

    def split(self) -> list[InFlightState]:
        """Give each offset a state to be looked at; one that is to change is `own`."""
        if self.offsets is None:
            if self.whole.undo is not None:
                self.whole = self.whole.copy()
            self.offsets = [self.whole] * (self.last - self.first + 1)
        return self.offsets

    def own(self, offset: int) -> InFlightState:
        """The state of one offset of a batch that is split, apart from the others: most are never touched singly."""
        states = self.split()
        state = states[offset - self.first]
        if state is self.whole:
            state = states[offset - self.first] = state.copy()
        return state

    def deliver(self, state: InFlightState, member_id: str) -> None:
        """Give records of one state to a member: the delivery counts from here on, whatever becomes of it."""
        state.state = ACQUIRED
        state.deliveries += 1
        state.member_id = member_id
        self.most = max(self.most, state.deliveries)

    def within(self, first: int, last: int) -> bool:
        """Whether the batch lies in a range, both ends included."""
        return first <= self.first and self.last <= last


class Batches:
    """Batches by their first offset; to drop the first ones costs as much as there are of them."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: list[InFlightBatch] = []
        self._head = 0

    def __len__(self) -> int:
        return len(self._batches) - self._head

    def __iter__(self) -> Iterator[InFlightBatch]:
        return self.since(None)

    @property
    def first(self) -> InFlightBatch:
        """The batch with the lowest offsets; there is one."""
        return self._batches[self._head]

    @property
    def last(self) -> InFlightBatch:
        """The batch with the highest first offset; there is one."""
        return self._batches[-1]

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at or before an offset; it may end before it."""
        at = bisect_right(self._firsts, offset, self._head) - 1
        return self._batches[at] if at >= self._head else None

    def after(self, offset: int) -> InFlightBatch | None:
        """The first batch that begins after an offset."""
        at = bisect_right(self._firsts, offset, self._head)
        return self._batches[at] if at < len(self._batches) else None

    def get(self, first: int) -> InFlightBatch | None:
        """The batch that begins at an offset."""
        batch = self.floor(first)
        return batch if batch is not None and batch.first == first else None

    def since(self, offset: int | None) -> Iterator[InFlightBatch]:
        """The batches from the one that has an offset on; None: all."""
        at = self._head if offset is None else max(bisect_right(self._firsts, offset, self._head) - 1, self._head)
        while at < len(self._batches):
            yield self._batches[at]
            at += 1

    def beginning_in(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that begin in a range, both ends included."""
        low = bisect_left(self._firsts, first, self._head)
        return self._batches[low : bisect_right(self._firsts, last, low)]

    def put(self, batch: InFlightBatch) -> None:
        """Add a batch, instead of one that begins at the same offset."""
        if not self or batch.first > self._firsts[-1]:
            self._firsts.append(batch.first)
            self._batches.append(batch)
            return
        at = bisect_left(self._firsts, batch.first, self._head)
        if self._firsts[at] == batch.first:
            self._batches[at] = batch
        else:
            self._firsts.insert(at, batch.first)
            self._batches.insert(at, batch)

    def drop_before(self, first: int) -> None:
        """Forget the batches that begin before an offset."""
        head = bisect_left(self._firsts, first, self._head)
        for at in range(self._head, head):
            self._batches[at] = self._batches[-1]  # lets go of it: the list is cut only now and then
        self._head = head
        if head > _COMPACT and head * 2 > len(self._batches):
            del self._firsts[:head], self._batches[:head]
            self._head = 0

    def clear(self) -> None:
        """Forget all."""
        self._firsts, self._batches, self._head = [], [], 0
