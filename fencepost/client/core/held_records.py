"""The records that a member has acquired: their locks, what the program decided, and what the broker must still learn.

A record is held from its acquisition until the broker has answered its acknowledgement, or until its lock has ended.
All times are seconds of one clock.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.client.core.acknowledgements import AcknowledgeType
from fencepost.client.core.acquired_records import AcquiredRange
from fencepost.client.core.share_session import Place
from fencepost.protocol.errors import ErrorCode

LOCK_ENDED = ErrorCode.INVALID_RECORD_STATE
"""The result of a record that the broker has given to others, as the broker itself answers it."""
_RENEW_AFTER = 0.5
"""A lock is renewed after this part of its time."""


@dataclass(slots=True, eq=False)
class HeldRecord:
    """One acquired record.

    `keeps_lock`: its lock is renewed before it ends. `result` is NONE once the broker has taken the acknowledgement;
    any other code means that this is not certain, and that the record may be delivered again. A release with a delay
    waits here, under its lock, until `release_at`; if the broker can hold records back (`broker_delays`), it is sent at
    once, and names the time until `held_until`.
    """

    place: Place
    offset: int
    delivery_count: int
    locked_until: float
    renew_at: float
    keeps_lock: bool = True
    may_renew: bool = True  # no renewal was refused
    decision: AcknowledgeType | None = None
    release_at: float = -math.inf
    held_until: float = -math.inf
    broker_delays: bool = False
    result: ErrorCode | None = None
    under_way: bool = False
    counts: bool = True  # as in flight


class Sent(NamedTuple):
    """One acknowledgement of a request that is under way."""

    record: HeldRecord
    kind: AcknowledgeType


class HeldRecords:
    """All of one member. `take` what a request carries, then report `answered` or `unanswered`."""

    def __init__(self) -> None:
        self._records: dict[Place, dict[int, HeldRecord]] = {}
        self._ready: dict[Place, list[HeldRecord]] = {}
        self._renewals: dict[Place, list[HeldRecord]] = {}
        self._parts: dict[Place, list[list[Sent]]] = {}
        self._under_way = 0
        self._look_at = math.inf
        self.in_flight = 0
        """How many are acquired and undecided, those whose release waits included."""
        self.lost: list[HeldRecord] = []
        """Those whose lock ended, or whose acknowledgement did not count; the owner takes them out."""

    @property
    def is_settled(self) -> bool:
        """Whether no acknowledgement waits, and none is under way."""
        waiting = [
            *self._ready.values(),
            *([one.record for one in part] for parts in self._parts.values() for part in parts),
        ]
        return not self._under_way and all(one.result is not None for some in waiting for one in some)

    def __iter__(self) -> Iterator[HeldRecord]:
        return iter([record for records in self._records.values() for record in records.values()])

    def acquired(
        self, place: Place, ranges: Iterable[AcquiredRange], now: float, lock_s: float, broker_delays: bool = False
    ) -> dict[int, HeldRecord]:
        """A response acquired these; by offset. An earlier delivery of the same record to this member has ended."""
        known = self._records.setdefault(place, {})
        made: dict[int, HeldRecord] = {}
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                if (old := known.get(offset)) is not None:
                    self._end(old, LOCK_ENDED)
                    self.lost.append(old)
                record = HeldRecord(place, offset, count, now + lock_s, now + lock_s * _RENEW_AFTER)
                record.broker_delays = broker_delays
                known[offset] = made[offset] = record
        self.in_flight += len(made)
        self._look_at = min(self._look_at, now + lock_s * _RENEW_AFTER)
        return made

    def decide(self, record: HeldRecord, kind: AcknowledgeType, release_at: float = -math.inf) -> None:
        """Acknowledge it; a release counts from `release_at` on. The first decision counts."""
        if record.decision is not None or record.result is not None:
            return
        record.decision = kind
        if record.broker_delays:
            record.held_until = release_at
            release_at = -math.inf
        record.release_at = release_at
        if release_at == -math.inf:
            self._is_ready(record)
        else:
            record.keeps_lock = record.may_renew
            self._look_at = min(self._look_at, release_at)

    def keep_lock(self, record: HeldRecord, keep: bool) -> None:
        """Whether to renew its lock from now on."""
        record.keeps_lock = keep and record.may_renew
        self._look_at = min(self._look_at, record.renew_at if keep else record.locked_until)

    # -- in transactions

    def give(self, records: Iterable[HeldRecord], kind: AcknowledgeType) -> None:
        """A transaction's request acknowledges these, which are undecided, until `give_ends`.

        None may be under way: a renewal behind that request would be refused, and others of its request with it.
        """
        for record in records:
            record.decision = kind
            record.under_way = True
            self._under_way += 1
            if record.counts:
                record.counts = False
                self.in_flight -= 1

    def give_ends(self, records: Iterable[HeldRecord], *, taken: bool) -> None:
        """The broker has taken them, and none is held any more; or not, and they are undecided again."""
        for record in records:
            record.under_way = False
            self._under_way -= 1
            if record.result is None and taken:
                self._end(record, ErrorCode.NONE)
            elif record.result is None:
                record.decision, record.counts = None, True
                self.in_flight += 1
                self._look_at = -math.inf

    def release_now(self, record: HeldRecord) -> None:
        """Release it if it is undecided, or at once if its release waits for a time."""
        if record.decision is None:
            self.decide(record, AcknowledgeType.RELEASE)
        elif record.counts and record.result is None:
            self._is_ready(record)

    def look(self, now: float) -> float:
        """Find what is due by `now`; returns when to look again."""
        if now < self._look_at:
            return self._look_at
        next_look = math.inf
        for record in self:
            if record.under_way or record.result is not None:
                continue
            if record.counts and record.decision is not None and record.release_at <= now:
                self._is_ready(record)
            elif record.locked_until <= now and not (record.keeps_lock and record.counts):
                self._end(record, LOCK_ENDED)
                self.lost.append(record)
            elif not record.counts or not record.keeps_lock:
                next_look = min(next_look, record.locked_until)
            else:
                if record.renew_at <= now:
                    self._renewals.setdefault(record.place, []).append(record)
                    record.renew_at = math.inf
                next_look = min(next_look, record.renew_at, record.release_at if record.decision else math.inf)
        self._look_at = next_look
        return next_look

    # -- requests

    def waiting(self) -> set[Place]:
        """The partitions with acknowledgements or renewals to send."""
        return {place for part in (self._ready, self._renewals, self._parts) for place, some in part.items() if some}

    def has_renewals(self, places: Iterable[Place]) -> bool:
        """Whether `take` would find renewals."""
        return any(self._renewals.get(place) for place in places) or any(
            one.kind is AcknowledgeType.RENEW for place in places for part in self._parts.get(place, []) for one in part
        )

    def take(self, places: Iterable[Place]) -> dict[Place, list[Sent]]:
        """The acknowledgements for the next request, and the renewals."""
        taken: dict[Place, list[Sent]] = {}
        for place in places:
            if parts := self._parts.get(place):
                chosen = [one for one in parts.pop() if one.record.result is None and not one.record.under_way]
            else:
                renewed = self._renewals.pop(place, [])
                ready = [one for one in self._ready.pop(place, []) if one.result is None]
                chosen = [Sent(one, AcknowledgeType.RENEW) for one in renewed if _may_renew(one)]
                chosen += [Sent(one, one.decision) for one in ready if one.decision is not None and not one.under_way]
                if behind := [one for one in ready if one.under_way]:
                    self._ready[place] = behind  # decided while their renewal is under way
            if chosen:
                taken[place] = chosen
                self._under_way += len(chosen)
                for one in chosen:
                    one.record.under_way = True
        return taken

    def answered(self, sent: Sequence[Sent], code: ErrorCode, sent_at: float, lock_s: float) -> None:
        """The broker answered one partition's part of a request.

        It takes or refuses all of the part together (SharePartition.acknowledge rolls back). So after a refusal the
        halves are sent again, one after the other, until it is known which records it was about. A renewal is also
        refused where the group has `share.renew.acknowledge.enable=false`: the lock then ends in its time.
        """
        if code.retriable:
            self.unanswered(sent)
            return
        self._back(sent)
        living = [one for one in sent if one.record.result is None]
        if code is not ErrorCode.NONE and len(living) > 1:
            half = len(living) // 2
            self._parts.setdefault(living[0].record.place, []).extend([living[half:], living[:half]])
            return
        for record, kind in living:
            if code is not ErrorCode.NONE and kind is AcknowledgeType.RENEW:
                record.keeps_lock = record.may_renew = False
            elif code is not ErrorCode.NONE:
                self._end(record, code)
                self.lost.append(record)
            elif kind is AcknowledgeType.RENEW:
                record.locked_until = sent_at + lock_s
                record.renew_at = sent_at + lock_s * _RENEW_AFTER
            else:
                self._end(record, ErrorCode.NONE)

    def unanswered(self, sent: Sequence[Sent]) -> None:
        """The request failed as a whole, or no response came: send them again, as far as their locks have not ended.

        An acknowledgement that had arrived is refused the second time, and is reported as lost: the record was
        processed, and the program learns that this is not certain.
        """
        self._back(sent)
        for record, kind in sent:
            if record.result is not None:
                continue
            if kind is AcknowledgeType.RENEW:
                self._renewals.setdefault(record.place, []).append(record)
            else:
                self._ready.setdefault(record.place, []).append(record)
        self._look_at = -math.inf

    def _back(self, sent: Sequence[Sent]) -> None:
        self._under_way -= len(sent)
        for record, kind in sent:
            record.under_way = False
            if kind is AcknowledgeType.RENEW:
                self._look_at = -math.inf  # `look` passed over it meanwhile

    def _is_ready(self, record: HeldRecord) -> None:
        if record.counts:
            record.counts = False
            self.in_flight -= 1
        self._ready.setdefault(record.place, []).append(record)
        self._look_at = min(self._look_at, record.locked_until)

    def _end(self, record: HeldRecord, result: ErrorCode) -> None:
        if record.counts:
            record.counts = False
            self.in_flight -= 1
        record.result = result
        known = self._records.get(record.place, {})
        if known.get(record.offset) is record:
            del known[record.offset]


def _may_renew(record: HeldRecord) -> bool:
    return record.result is None and not record.under_way and record.counts
