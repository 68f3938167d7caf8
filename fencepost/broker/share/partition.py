"""A share partition as its leader sees it: pure decisions (Kafka 4.4's SharePartition)."""

from collections.abc import Callable, Iterator, Sequence

from fencepost.broker.share.acknowledging import acknowledge, expire, release
from fencepost.broker.share.acquiring import acquire
from fencepost.broker.share.change import Change
from fencepost.broker.share.describing import StateRange, ranges
from fencepost.broker.share.in_flight import (
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    TERMINAL,
    TX_PENDING,
    InFlightBatch,
    InFlightState,
)
from fencepost.broker.share.in_transaction import (
    Undecided,
    acknowledge_in,
    resolve,
    resolve_as_stored,
    restore_pending,
    undecided,
)
from fencepost.broker.share.values import AckBatch, Acquired, DeadCause, DeadLetters, Fetched, Limits, Want
from fencepost.broker.share.window import Window
from fencepost.coordinator.share.values import NOT_HELD, UNINITIALIZED, DeliveryState, StoredState


class SharePartition:
    """The records of one partition that one share group has in flight.

    Times are milliseconds of a clock that only grows.
    One fetch at a time: between reading `next_fetch_offset` and `acquire` with what the log gave, begin no other fetch.
    Every `Change` is stored and then settled, in the order in which they came; fetches that wait may find records after
    a settled change and after `expire`.
    """

    def __init__(self, limits: Callable[[], Limits]) -> None:
        """`limits` is asked at each decision, for the settings of a group change while it runs."""
        self._limits = limits
        self._window = Window()
        self._state_epoch = 0

    def restore(self, state: StoredState, first_offset: int) -> tuple[DeadLetters, ...]:
        """Begin with what the persister knows, once, before anything else; `first_offset` if it has no start offset.

        `first_offset` is what `share.auto.offset.reset` leads to. Answers what a leader before this one has not written
        to the dead-letter topic. Raises ValueError if the stored batches lie before the start or end before they begin.
        The times in `state` are those of the locks' clock.
        """
        window = self._window
        start = first_offset if state.start_offset == UNINITIALIZED else state.start_offset
        window.start = window.stored = start
        self._state_epoch = state.state_epoch
        dead: list[DeadLetters] = []
        gap, expected = None, start
        for first, last, number, deliveries, held_until in state.batches:
            if not start <= first <= last:
                raise ValueError(
                    f"A share partition cannot begin at {start}: its stored state has a batch of {first} to {last}."
                )
            if gap is None and first > expected:
                gap = expected
            expected = last + 1
            delivery_state = DeliveryState(number)
            if delivery_state is TX_PENDING:
                continue
            whole = InFlightState(delivery_state, deliveries)
            window.batches.put(InFlightBatch(first, last, whole))
            if delivery_state is AVAILABLE and held_until != NOT_HELD:
                whole.lock = held_until
                window.hold_back(whole, first)
            if delivery_state in TERMINAL:
                window.complete += last - first + 1
            elif delivery_state is ARCHIVING:
                limited = deliveries >= self._limits().delivery_count_limit
                dead.append(DeadLetters(first, last, deliveries, DeadCause.LIMIT if limited else DeadCause.REJECTED))
        restore_pending(window, state.pending)
        if not window.batches:
            window.end = start
            return ()
        window.make_available(start)  # not `search`: a transaction that ends now would have it begin at its records
        window.end = window.batches.last.last
        if gap is not None:
            window.open_gap(gap)
        window.advance()
        return tuple(dead)

    @property
    def start_offset(self) -> int:
        """The first offset that may still be delivered (SPSO)."""
        return self._window.start

    @property
    def end_offset(self) -> int:
        """The last offset that was acquired; equal to the start offset while nothing is in flight."""
        return self._window.end

    @property
    def state_epoch(self) -> int:
        """The epoch at which the group's state was restored: each update carries it."""
        return self._state_epoch

    @property
    def in_flight(self) -> int:
        """How many offsets lie from the start offset to the end offset, settled ones included; 0 if none is known."""
        return self._window.in_flight

    @property
    def delivery_complete_count(self) -> int:
        """How many records at or after the start offset are acknowledged or archived (KIP-1226)."""
        return self._window.complete

    def ranges(self, now_ms: int) -> Iterator[StateRange]:
        """What has become of the records in flight, in offset order."""
        return ranges(self._window, now_ms)

    def next_fetch_offset(self) -> int:
        """Where to read the log for the next acquisition: at records that are available again, else behind the end."""
        return self._window.next_fetch_offset()

    def has_new(self, first_offset: int, last_offset: int) -> bool:
        """Whether records of a range were never delivered, and are not known to be held back: for `Fetched.held`."""
        return self._window.has_new(first_offset, last_offset)

    def can_acquire(self) -> bool:
        """Whether a fetch could acquire something: records are available again, or the limit in flight has room."""
        return self.next_fetch_offset() != self.end_offset + 1 or self._window.room(self._limits()) > 0

    def acquire(self, member_id: str, fetched: Fetched, want: Want, now_ms: int) -> list[Acquired]:
        """Give a member what is available of the records that were read, until its locks end.

        Nothing is stored. Records of aborted transactions are archived instead. Available records between the fetch
        offset and the first batch are archived too: the log has no longer got them.
        """
        return acquire(self._window, self._limits(), member_id, fetched, want, now_ms)

    def acknowledge(self, member_id: str, batches: Sequence[AckBatch], now_ms: int) -> Change:
        """Take what a member says of records that it holds; the answer to it waits until the change is stored.

        Raises Refused, having undone what came before in `batches` (but for renewed locks).
        """
        change = Change(self._window, self._state_epoch)
        acknowledge(self._window, self._limits(), change, member_id, batches, now_ms)
        return change.close()

    def acknowledge_in(
        self, member_id: str, batches: Sequence[AckBatch], producer_id: int, *, again: bool = False
    ) -> Change:
        """Have a producer's transaction decide on records that a member holds, with types ACCEPT, REJECT and GAP.

        Nothing to store if the transaction has them already, but with `again`. Raises Refused as `acknowledge`.
        """
        change = Change(self._window, self._state_epoch)
        acknowledge_in(self._window, self._limits(), change, member_id, batches, producer_id, again)
        return change  # a transaction stores no offsets

    def undecided(self) -> list[Undecided]:
        """The records on which transactions decide, and the share coordinator knows of it."""
        return undecided(self._window)

    def resolve_as_stored(self, asked: Sequence[Undecided], stored: StoredState) -> Change:
        """What has become of records that were `undecided` when the state was read. Certain: it is stored."""
        change = Change(self._window, self._state_epoch, certain=True)
        resolve_as_stored(self._window, self._limits(), change, asked, stored.batches)
        return change.close()

    def resolve(self, producer_id: int, commit: bool) -> Change:
        """A transaction ended: what it acknowledged is done, or available again. Certain: the marker is durable."""
        change = Change(self._window, self._state_epoch, certain=True)
        resolve(self._window, self._limits(), change, producer_id, commit)
        return change.close()

    def release(self, member_id: str) -> Change:
        """Make available again what a member holds, which left or whose session ended."""
        change = Change(self._window, self._state_epoch)
        release(self._window, self._limits(), change, member_id)
        return change.close()

    def expire(self, now_ms: int) -> Change:
        """Release the records whose locks have ended: at once, whether it can be stored or not.

        Records that were held back until now are available.
        """
        change = Change(self._window, self._state_epoch, certain=True)
        expire(self._window, self._limits(), change, now_ms)
        return change.close()

    def next_expiry(self) -> int | None:
        """When to call `expire` next: no lock ends before. None if no record is locked or held back."""
        return self._window.next_due()

    def log_start_moved(self, log_start_offset: int) -> None:
        """Retention or DeleteRecords removed the records below: archive what was available there.

        Stored with the next change. Records that a member holds stay its own until it ends that, or the lock ends.
        """
        self._window.move_to(log_start_offset)

    def archive(self, dead: DeadLetters) -> Change:
        """Records that are written to the dead-letter topic, or could not be: they are done."""
        change = Change(self._window, self._state_epoch, certain=True)
        self._window.archive_dead(dead.first_offset, dead.last_offset)
        change.wrote(dead.first_offset, dead.last_offset, ARCHIVED, dead.delivery_count)
        return change.close()

    def offsets(self) -> Change:
        """The offsets alone, to see whether the state can be stored."""
        change = Change(self._window, self._state_epoch)
        change.with_offsets()
        return change.close()
