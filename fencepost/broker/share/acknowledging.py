"""What becomes of records that a member holds: it acknowledges or releases them, or their locks end."""

from collections.abc import Sequence

from fencepost.broker.share.change import Change
from fencepost.broker.share.in_flight import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    EXPIRED,
    NO_LOCK,
    InFlightBatch,
    InFlightState,
)
from fencepost.broker.share.values import AckBatch, AckType, DeadCause, Limits, Refused, held_until
from fencepost.broker.share.window import Window
from fencepost.coordinator.share.values import DeliveryState
from fencepost.protocol.errors import ErrorCode

_STATES = (ARCHIVED, ACKNOWLEDGED, AVAILABLE, ARCHIVED)
"""What GAP, ACCEPT, RELEASE and REJECT make of a record."""


def acknowledge(
    window: Window, limits: Limits, change: Change, member_id: str, batches: Sequence[AckBatch], now_ms: int
) -> None:
    """SharePartition.acknowledge; raises Refused, with what came before rolled back."""
    Acknowledging(window, limits, change, member_id, now_ms).take_all(batches)


def release(window: Window, limits: Limits, change: Change, member_id: str) -> None:
    """SharePartition.releaseAcquiredRecords."""
    for batch in window.batches:
        if batch.offsets is None:
            whole = batch.whole
            if whole.state is not ACQUIRED or whole.member_id != member_id:
                continue
            if not batch.first < window.start <= batch.last:
                whole.begin_end(released(batch.last, window), limits.delivery_count_limit, limits.dead_letters)
                change.ended(whole, batch.first, batch.last)
                continue
        for offset, state in enumerate(window.split(batch), batch.first):
            if state.state is ACQUIRED and state.member_id == member_id:
                state = batch.own(offset)
                state.begin_end(released(offset, window), limits.delivery_count_limit, limits.dead_letters)
                change.ended(state, offset, offset)


def expire(window: Window, limits: Limits, change: Change, now_ms: int) -> None:
    """SharePartition.releaseAcquisitionLockOnTimeout, for all locks that have ended by now.

    Ours: what was held back until now is available. Nothing of that is stored.
    """
    while (batch := window.take_due(now_ms)) is not None:
        whole = batch.whole
        if 0 <= whole.lock <= now_ms and whole.state is ACQUIRED and batch.first < window.start <= batch.last:
            window.split(batch)
        if batch.offsets is None:
            _expire(window, limits, change, whole, batch.first, batch.last, now_ms)
        else:
            for offset, state in enumerate(batch.offsets, batch.first):
                if 0 <= state.lock <= now_ms:
                    _expire(window, limits, change, batch.own(offset), offset, offset, now_ms)
        window.look_again(batch)


def _expire(
    window: Window, limits: Limits, change: Change, state: InFlightState, first: int, last: int, now_ms: int
) -> None:
    if not 0 <= state.lock <= now_ms:
        return
    if state.held_back:
        state.lock = NO_LOCK
        window.scheduled -= 0 if state.deliveries else last - first + 1
        window.make_available(first)
        return
    if state.state is not ACQUIRED:
        state.lock = EXPIRED  # a transition is being stored: if it is rolled back, the lock has ended
        return
    state.end(released(last, window), limits.delivery_count_limit, limits.dead_letters)
    state.commit()
    change.ended(state, first, last)
    if state.state is AVAILABLE:
        window.make_available(first)


def released(offset: int, window: Window) -> DeliveryState:
    """What a record that is given back becomes: below the start offset the log no longer has it."""
    return ARCHIVED if offset < window.start else AVAILABLE


class Acknowledging:
    """One member's acknowledgements under way."""

    def __init__(self, window: Window, limits: Limits, change: Change, member_id: str, now_ms: int) -> None:
        self._window = window
        self._limits = limits
        self._change = change
        self._member_id = member_id
        self._now_ms = now_ms
        self._lock_until = now_ms + limits.lock_ms
        self._held_until = NO_LOCK
        """Until when the records are held back that the present batch releases."""

    def take_all(self, batches: Sequence[AckBatch]) -> None:
        """Take all batches of a request, or raise Refused, with what came before rolled back."""
        try:
            for batch in batches:
                self.take(batch)
        except Refused:
            self._change.roll_back()
            raise

    def take(self, batch: AckBatch) -> None:
        """Take one batch of a request; what lies before the start offset is done whatever the member says."""
        if not all(AckType.GAP <= one <= AckType.RENEW for one in batch.types) or len(batch.types) not in (
            1,
            batch.last_offset - batch.first_offset + 1,
        ):
            raise Refused(ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: {list(batch.types)[:10]}")
        self._change.skipped(batch.first_offset, batch.last_offset)
        if batch.last_offset < self._window.start:
            return
        self._held_until = NO_LOCK
        if batch.delay_ms:
            self._held_until = held_until(self._now_ms + batch.delay_ms)
        for known in self._known(batch):
            if known.last >= self._window.start:
                self._take_from(batch, known)

    def _known(self, batch: AckBatch) -> list[InFlightBatch]:
        """The batches in flight that a member speaks of (SharePartition.fetchSubMapForAcknowledgementBatch)."""
        window = self._window
        floor = window.batches.floor(batch.first_offset)
        if floor is None and batch.first_offset < window.start:
            floor = window.batches.floor(window.start)
        if floor is None:
            raise _invalid("Batch record not found. The request batch offsets are not found in the cache.")
        known = window.batches.beginning_in(floor.first, batch.last_offset)
        if known[-1].last < batch.last_offset:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            )
        return known

    def _take_from(self, batch: AckBatch, known: InFlightBatch) -> None:
        """SharePartition.acknowledgeBatchRecords."""
        if known.offsets is None and not self._holds(known.whole):
            raise _invalid("The batch is not acquired by the member.")
        if (
            known.offsets is None
            and known.within(batch.first_offset, batch.last_offset)
            and len(batch.types) == 1
            and not known.first < self._window.start
        ):
            self._take_state(known, known.whole, known.first, known.last, batch.types[0])
            return
        first = max(known.first, batch.first_offset, self._window.start)
        last = min(known.last, batch.last_offset)
        for offset in range(first, last + 1):
            kind = batch.types[offset - batch.first_offset if len(batch.types) > 1 else 0]
            self._take_state(known, known.own(offset), offset, offset, kind)

    def _holds(self, state: InFlightState) -> bool:
        return state.state is ACQUIRED and state.member_id == self._member_id

    def _take_state(self, batch: InFlightBatch, state: InFlightState, first: int, last: int, kind: int) -> None:
        """Take what the member says of a whole batch, or of one offset."""
        if not self._holds(state):
            raise _invalid("The record is not acquired by the member.")
        if kind == AckType.RENEW:
            if not self._limits.renew:
                raise _invalid("Renewing acquisition locks is not enabled for the group.")
            self._window.lock(batch, state, self._lock_until)
            return
        self._end(state, first, last, self._wanted(kind))

    def _wanted(self, kind: int) -> DeliveryState:
        """What a member's word makes of a record."""
        return ARCHIVING if kind == AckType.REJECT and self._limits.dead_letters else _STATES[kind]

    def _end(self, state: InFlightState, first: int, last: int, wanted: DeliveryState) -> None:
        state.begin_end(wanted, self._limits.delivery_count_limit, self._limits.dead_letters, self._held_until)
        self._change.ended(state, first, last, DeadCause.REJECTED if wanted is ARCHIVING else DeadCause.LIMIT)


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_RECORD_STATE, message)
