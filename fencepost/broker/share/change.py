"""A change of a share partition that has to be stored before it counts."""

from collections.abc import Collection

from fencepost.broker.share.in_flight import ARCHIVING, AVAILABLE, NO_LOCK, TERMINAL, AtCommit, InFlightState
from fencepost.broker.share.values import DeadCause, DeadLetters
from fencepost.broker.share.window import Window
from fencepost.coordinator.share.values import UNINITIALIZED, DeliveryState, StateBatch, StateUpdate


class Change:
    """False where there is nothing to store; else store `update(...)`, then `settle`, exactly once."""

    def __init__(self, window: Window, state_epoch: int, *, certain: bool = False) -> None:
        """`certain`: it counts even if it cannot be stored."""
        self._window = window
        self._state_epoch = state_epoch
        self._certain = certain
        self._ended: list[tuple[InFlightState, int, int, DeliveryState]] = []
        self._pended: list[tuple[InFlightState, int, AtCommit | None]] = []
        self._dead: list[DeadLetters] = []
        self.batches: list[StateBatch] = []
        """The new states, in offset order within what one batch of a request says; neighbours alike are one. Times are
        those of the locks' clock."""
        self.start_offset = UNINITIALIZED
        self.delivery_complete_count = window.complete
        self._offsets_count = False

    def __bool__(self) -> bool:
        return bool(self.batches) or self._offsets_count

    def size(self, states: Collection[int] = tuple(DeliveryState)) -> int:
        """How many offsets it brings into these states."""
        return sum(one.last_offset - one.first_offset + 1 for one in self.batches if one.delivery_state in states)

    def update(self, leader_epoch: int, wall_ahead_ms: int = 0) -> StateUpdate:
        """What to give to the persister, at the partition's leader epoch.

        `wall_ahead_ms`: the wall clock, by which times are stored, less the clock of locks.
        """
        batches = [batch if batch.held_until_ms < 0 else batch.shifted(wall_ahead_ms) for batch in self.batches]
        return StateUpdate(self._state_epoch, leader_epoch, self.start_offset, self.delivery_complete_count, batches)

    def settle(self, stored: bool) -> tuple[DeadLetters, ...]:
        """Commit the change, or roll it back if it could not be stored; what then goes to the dead-letter topic.

        Locks that ended and dead letters that were written count even where they could not be stored.
        """
        if stored:
            self._window.stored = max(self._window.stored, self.start_offset)
        if not self.batches:
            return ()
        if not (stored or self._certain):
            self.roll_back()
            return ()
        for state, first, _, _ in self._ended:
            state.commit()
            if state.state is not AVAILABLE:
                continue
            if state.lock == NO_LOCK:
                self._window.make_available(first)
            else:
                self._window.hold_back(state, first)
        for state, _, _ in self._pended:
            state.commit()
        self._window.advance()
        return tuple(self._dead)

    def roll_back(self) -> None:
        """Undo what can be undone (SharePartition.rollbackOrProcessStateUpdates)."""
        for state, first, last, wanted in self._ended:
            state.roll_back()
            if state.state is AVAILABLE:
                self._window.make_available(first)
            if wanted in TERMINAL and state.state not in TERMINAL:
                self._window.complete -= self._window.in_window(first, last)
        for state, first, before in self._pended:
            state.at_commit = before
            state.roll_back()
            if state.state is AVAILABLE:
                self._window.make_available(first)

    def ended(self, state: InFlightState, first: int, last: int, cause: DeadCause = DeadCause.LIMIT) -> None:
        """Note that the delivery of records ended, in the state that they have now."""
        if not self._certain:
            self._ended.append((state, first, last, state.state))
        self.wrote(first, last, state.state, state.deliveries, NO_LOCK if state.undo is None else state.undo[3])
        if state.state is ARCHIVING:
            self._add_dead(DeadLetters(first, last, state.deliveries, cause))
        if state.state in TERMINAL:
            self._window.complete += self._window.in_window(first, last)

    def with_offsets(self) -> None:
        """Have the offsets stored though no state changed."""
        self._offsets_count = True

    def skipped(self, first: int, last: int) -> None:
        """Note that a range before the start offset is done: the answer waits until the start is stored, if it is not.

        The start also moves over locks that ended though that could not be stored, and with the log's start. Kafka
        answers NONE at once: without the stored start, the next leader delivers the records again.
        """
        window = self._window
        if max(first, window.stored) < min(last + 1, window.start):
            self.with_offsets()

    def pended(self, state: InFlightState, first: int, last: int, at_commit: AtCommit, limit: int) -> None:
        """Have a transaction decide on records; `limit` is that of their deliveries."""
        self._pended.append((state, first, state.at_commit))
        undo = (state.state, state.member_id, limit, NO_LOCK)
        state.pend(at_commit)
        state.undo = undo
        self.wrote(first, last, at_commit.state, state.deliveries)

    def wrote(self, first: int, last: int, state: DeliveryState, deliveries: int, held_until_ms: int = NO_LOCK) -> None:
        """Note what is to be stored of a range."""
        StateBatch(first, last, state, deliveries, held_until_ms).add_to(self.batches)

    def close(self) -> "Change":
        """All is noted: take the offsets that are stored with it."""
        self.start_offset = self._window.start
        self.delivery_complete_count = self._window.complete
        return self

    def _add_dead(self, dead: DeadLetters) -> None:
        before = self._dead[-1] if self._dead else None
        if before is not None and before[1:] == (dead.first_offset - 1, *dead[2:]):
            self._dead[-1] = before._replace(last_offset=dead.last_offset)
        else:
            self._dead.append(dead)
