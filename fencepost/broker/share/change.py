"""A change of a share partition that has to be stored before it counts."""

from fencepost.broker.share.in_flight import ARCHIVING, AVAILABLE, TERMINAL, AtCommit, InFlightState
from fencepost.broker.share.values import DeadCause, DeadLetters
from fencepost.broker.share.window import Window
from fencepost.coordinator.share.values import DeliveryState, StateBatch, StateUpdate


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
        """The new states, in offset order within what one batch of a request says; neighbours alike are one."""
        self.start_offset = window.start
        self.delivery_complete_count = window.complete

    def __bool__(self) -> bool:
        return bool(self.batches)

    def update(self, leader_epoch: int) -> StateUpdate:
        """What to give to the persister, at the partition's leader epoch."""
        return StateUpdate(
            self._state_epoch, leader_epoch, self.start_offset, self.delivery_complete_count, self.batches
        )

    def settle(self, stored: bool) -> tuple[DeadLetters, ...]:
        """Commit the change, or roll it back if it could not be stored; what then goes to the dead-letter topic.

        Locks that ended and dead letters that were written count even where they could not be stored.
        """
        if not self.batches:
            return ()
        if not (stored or self._certain):
            self.roll_back()
            return ()
        for state, first, _, _ in self._ended:
            state.commit()
            if state.state is AVAILABLE:
                self._window.make_available(first)
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
        self.wrote(first, last, state.state, state.deliveries)
        if state.state is ARCHIVING:
            self._add_dead(DeadLetters(first, last, state.deliveries, cause))
        if state.state in TERMINAL:
            self._window.complete += self._window.in_window(first, last)

    def pended(self, state: InFlightState, first: int, last: int, at_commit: AtCommit, limit: int) -> None:
        """Have a transaction decide on records; `limit` is that of their deliveries."""
        self._pended.append((state, first, state.at_commit))
        undo = (state.state, state.member_id, limit)
        state.pend(at_commit)
        state.undo = undo
        self.wrote(first, last, at_commit.state, state.deliveries)

    def wrote(self, first: int, last: int, state: DeliveryState, deliveries: int) -> None:
        """Note what is to be stored of a range."""
        before = self.batches[-1] if self.batches else None
        if before is not None and before[1:] == (first - 1, state, deliveries):
            self.batches[-1] = before._replace(last_offset=last)
        else:
            self.batches.append(StateBatch(first, last, state, deliveries))

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
