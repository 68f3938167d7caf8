"""What members acknowledge in a transaction, which decides what becomes of the records (after KIP-1289's draft). Pure.

They are TX_PENDING until its end: not delivered, held by no member, without a lock. Then they are acknowledged or
archived, or available again.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fencepost.broker.share.acknowledging import Acknowledging, released
from fencepost.broker.share.change import Change
from fencepost.broker.share.in_flight import (
    ARCHIVING,
    AVAILABLE,
    NO_LOCK,
    TX_PENDING,
    AtCommit,
    InFlightBatch,
    InFlightState,
)
from fencepost.broker.share.values import AckBatch, DeadCause, Limits, Refused
from fencepost.broker.share.window import Window
from fencepost.coordinator.share.values import DeliveryState, PendingBatch, StateBatch
from fencepost.protocol.errors import ErrorCode


def acknowledge_in(
    window: Window,
    limits: Limits,
    change: Change,
    member_id: str,
    batches: Sequence[AckBatch],
    producer_id: int,
    again: bool,
) -> None:
    """Have the producer's transaction decide on records; raises Refused, with what came before rolled back.

    The types are ACCEPT, REJECT and GAP. What the producer has acknowledged so already is left, as a repeated request
    changes nothing; or it is stored `again`, where its transaction may have ended without this leader's knowledge.
    """
    _InTransaction(window, limits, change, member_id, producer_id, again).take_all(batches)


class _InTransaction(Acknowledging):
    """As an acknowledgement, for which the end of the transaction counts."""

    def __init__(
        self, window: Window, limits: Limits, change: Change, member_id: str, producer_id: int, again: bool
    ) -> None:
        super().__init__(window, limits, change, member_id, 0)
        self._producer_id = producer_id
        self._again = again

    def take(self, batch: AckBatch) -> None:
        """As without a transaction, but what is done already is refused: another member may have acknowledged it."""
        if batch.first_offset < self._window.start:
            raise Refused(ErrorCode.INVALID_RECORD_STATE, "The records are not acquired by the member any more.")
        super().take(batch)

    def _take_from(self, batch: AckBatch, known: InFlightBatch) -> None:
        if not self._is_repeated(batch, known):
            super()._take_from(batch, known)
            return
        first, last = max(known.first, batch.first_offset, self._window.start), min(known.last, batch.last_offset)
        for offset in range(first, last + 1) if self._again else ():
            state = known.own(offset)
            if state.at_commit is not None:
                self._end(state, offset, offset, state.at_commit.state)

    def _is_repeated(self, batch: AckBatch, known: InFlightBatch) -> bool:
        first = max(known.first, batch.first_offset, self._window.start)
        last = min(known.last, batch.last_offset)
        return first <= last and all(
            known.at(offset).at_commit
            == AtCommit(
                self._producer_id,
                self._wanted(batch.types[offset - batch.first_offset if len(batch.types) > 1 else 0]),
            )
            for offset in range(first, last + 1)
        )

    def _end(self, state: InFlightState, first: int, last: int, wanted: DeliveryState) -> None:
        at_commit = AtCommit(self._producer_id, wanted)
        self._change.pended(state, first, last, at_commit, self._limits.delivery_count_limit)


def resolve(window: Window, limits: Limits, change: Change, producer_id: int, commit: bool) -> None:
    """The producer's transaction ended: what it acknowledged is done, or available again, as if it were released."""
    for batch in window.batches:
        if batch.offsets is None:
            if not _is_pending(batch.whole, producer_id):
                continue
            if commit or not batch.first < window.start <= batch.last:
                _resolve(window, limits, change, batch.whole, batch.first, batch.last, commit)
                continue
        for offset, state in enumerate(window.split(batch), batch.first):
            if _is_pending(state, producer_id):
                _resolve(window, limits, change, batch.own(offset), offset, offset, commit)
    window.advance()


def _is_pending(state: InFlightState, producer_id: int) -> bool:
    return state.at_commit is not None and state.at_commit.producer_id == producer_id


def _resolve(
    window: Window, limits: Limits, change: Change, state: InFlightState, first: int, last: int, commit: bool
) -> None:
    at_commit, state.at_commit, state.lock = state.at_commit, None, NO_LOCK
    if commit and at_commit is not None:
        state.state, state.member_id = at_commit.state, ""
    else:
        state.end(released(last, window), limits.delivery_count_limit, limits.dead_letters)
    change.ended(state, first, last, DeadCause.REJECTED if commit and state.state is ARCHIVING else DeadCause.LIMIT)
    if state.state is AVAILABLE:
        window.make_available(first)


class Undecided(NamedTuple):
    """Records on which a transaction decides, and the share coordinator knows of it."""

    first_offset: int
    last_offset: int
    at_commit: AtCommit


def undecided(window: Window) -> list[Undecided]:
    """What may be asked for; not what is being stored now."""
    found = []
    for batch in window.batches:
        if batch.offsets is None:
            if batch.whole.at_commit is not None and batch.whole.undo is None:
                found.append(Undecided(batch.first, batch.last, batch.whole.at_commit))
            continue
        for offset, state in enumerate(batch.offsets, batch.first):
            if state.at_commit is not None and state.undo is None:
                found.append(Undecided(offset, offset, state.at_commit))
    return found


def resolve_as_stored(
    window: Window, limits: Limits, change: Change, asked: Iterable[Undecided], stored: Sequence[StateBatch]
) -> None:
    """What the share coordinator has of records that were undecided when it was asked.

    It knows of no other change of them, so a state that is not TX_PENDING is that of the transaction's end. What was
    acknowledged again since is left.
    """
    firsts = [batch.first_offset for batch in stored]
    for first, last, at_commit in asked:
        for offset in range(first, last + 1):
            batch = window.batches.floor(offset)
            if batch is None or batch.last < offset or batch.at(offset).at_commit is not at_commit:
                continue
            at = bisect_right(firsts, offset) - 1
            is_known = at >= 0 and offset <= stored[at].last_offset
            found = stored[at].delivery_state if is_known else AVAILABLE
            if found != TX_PENDING and batch.at(offset).undo is None:
                window.split(batch)
                _resolve(window, limits, change, batch.own(offset), offset, offset, found != AVAILABLE)
    window.advance()


def restore_pending(window: Window, pending: Iterable[PendingBatch]) -> None:
    """Put into the window what the persister knows of open transactions, which was left out of it."""
    for producer_id, (first, last, state, deliveries, _) in pending:
        if last < window.start:
            continue
        undecided = InFlightState(TX_PENDING, deliveries)
        undecided.at_commit = AtCommit(producer_id, DeliveryState(state))
        window.batches.put(InFlightBatch(max(first, window.start), last, undecided))
