"""Which batch of a partition is sent next, under which producer id, epoch and sequence, and what a response means.

A batch goes   waiting -> in flight -> settled
                             |    ^
                             v    |
                            resend        with the same sequence: the broker recognises a duplicate (row P3)

Two rules make records arrive once and in order (rows P2 to P7, KIP-360):

- A sequence that was assigned is either accepted, or what follows gets new sequences under a new epoch.
- A batch that may be in the log is never sent under another sequence. Where the broker has lost the producer's state,
  and so cannot recognise the batch, its records fail, and the error says that they may have been written.

Pure: times are arguments, and the sender sends.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.sequence import NO_SEQUENCE, advance
from fencepost.protocol.topics import TopicPartition

MAX_IN_FLIGHT = 5
"""A broker remembers this many batches per producer and partition (row P3): no more may be sent, counted from the
oldest unanswered one."""
HIGHEST_EPOCH = 2**15 - 2
NO_PRODUCER = (-1, -1)
Producer = tuple[int, int]

LOST_SEQUENCE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
FENCED_EPOCH = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_ACCEPTED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_NOT_APPENDED = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Errors that a broker returns before it appends. After all other retriable ones the batch may be in the log: a leader
that has lost its leadership returns NOT_LEADER_OR_FOLLOWER for a batch that it has appended."""


class Verdict(Enum):
    """The result of a response for a batch."""

    ACCEPTED = auto()
    """It is in the log, from this attempt or an earlier one."""
    AGAIN = auto()
    """It is queued again and will be resent."""
    SPLIT = auto()
    """It is too large for the broker: it is queued again, and the caller replaces it by its halves (`replace`)."""
    REJECTED = auto()
    """It will not be sent again."""
    GONE = auto()
    """Its records had failed before; now its sequence is settled, too."""


class SequencedBatch:
    """Records of one partition under one base sequence; the base class of the producer's batches."""

    __slots__ = ("base_sequence", "expires_at", "given_up", "may_be_written", "ready_at", "records", "sent_as")

    def __init__(self, ready_at: float, expires_at: float) -> None:
        self.records: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = []
        self.ready_at = ready_at
        self.expires_at = expires_at
        self.base_sequence = NO_SEQUENCE
        self.may_be_written = False
        """An attempt was sent whose outcome is unknown: the batch may be in the log."""
        self.sent_as = 0
        """How many batches of the partition were sent before its last attempt."""
        self.given_up = False
        """Its records have failed at their deadline while a request that holds them was unanswered."""

    def restamp(self, producer: Producer, base_sequence: int) -> None:
        """Give the batch a new identity and sequence, after an epoch bump (row P7)."""
        self.base_sequence = base_sequence


B = TypeVar("B", bound=SequencedBatch)


class Missing(NamedTuple):
    """A sequence that was assigned and will not be sent any more."""

    base_sequence: int
    may_be_written: bool


@dataclass(slots=True, eq=False, repr=False)
class PartitionQueue(Generic[B]):
    """A producer's batches for one partition."""

    partition: TopicPartition
    waiting: deque[B] = field(default_factory=deque)
    in_flight: list[B] = field(default_factory=list)
    resend: list[B] = field(default_factory=list)
    producer: Producer = NO_PRODUCER
    accepted_id: int = NO_PRODUCER[0]  # the producer id that has an accepted batch here
    next_sequence: int = 0
    sends: int = 0
    backoff_until: float = 0.0
    missing: list[Missing] = field(default_factory=list)  # the next new number must not follow these
    restart: bool = False  # the broker does not know the sequence: begin at 0 under a new epoch
    withheld: bool = False  # the transaction does not have this partition yet

    # -- state

    @property
    def idle(self) -> bool:
        return not (self.waiting or self.in_flight or self.resend)

    @property
    def gap(self) -> bool:
        return bool(self.missing)

    @property
    def full(self) -> bool:
        """Whether the broker might forget the oldest unanswered batch if another one were sent.

        Mostly that is when five are unanswered; fewer, where the leader has moved and answers sooner than the old one.
        """
        return bool(self.in_flight) and self.sends - self.in_flight[0].sent_as >= MAX_IN_FLIGHT

    def unresolved(self) -> Iterator[B]:
        """Every batch with a sequence whose outcome is open."""
        yield from self.in_flight
        yield from self.resend

    def is_first_unresolved(self, batch: B) -> bool:
        """Whether all earlier batches here are settled, so that an error about order is about `batch`."""
        base = batch.base_sequence
        return all(other is batch or not _before(other.base_sequence, base) for other in self.unresolved())

    def wakes_at(self, now: float) -> float:
        """When this partition may next have a batch to send, unless another event comes first."""
        alone = self.resend or self.missing or self.accepted_id != self.producer[0]
        if self.withheld or (self.in_flight and (alone or self.full)):
            return float("inf")
        if self.resend:
            return max(self.backoff_until, now)
        if not self.waiting:
            return float("inf")
        return max(self.backoff_until, self.waiting[0].ready_at)

    # -- sending

    def next_batch(self, now: float) -> B | None:
        """Take the batch that may be sent now, with its sequence, or None.

        Resent batches go one at a time, before new ones. New batches go up to five at once, except the first, which
        goes alone: a partition without state for this producer accepts any sequence number (row P5). It would accept
        the second batch if the first had reached a broker that does not lead the partition yet.
        """
        if self.withheld or self.backoff_until > now or self.full:
            return None
        if self.resend:
            if self.in_flight or self.restart:
                return None
            batch = self.resend.pop(0)
        else:
            if self.missing or self.restart or not self.waiting or self.waiting[0].ready_at > now:
                return None
            if self.in_flight and self.accepted_id != self.producer[0]:
                return None
            batch = self.waiting.popleft()
            batch.base_sequence = self.next_sequence
            self.next_sequence = advance(self.next_sequence, len(batch.records))
        batch.sent_as, self.sends = self.sends, self.sends + 1
        self.in_flight.append(batch)
        return batch

    def needs_epoch(self) -> bool:
        return self.restart or (bool(self.missing) and not self.resend)

    def adopt(self, producer: Producer) -> list[B]:
        """Continue under another producer id or epoch, from 0; batches to be resent get new sequences.

        Returns the batches that may be in the log under their old sequence, and so must fail. Only a batch after a
        sequence that certainly was not appended cannot be in the log itself.
        """
        assert not self.in_flight, f"{self.partition}: a new epoch while batches of the old one are unanswered"
        open_numbers: list[tuple[int, bool, B | None]] = [
            (one.base_sequence, one.may_be_written, None) for one in self.missing
        ]
        open_numbers += [(batch.base_sequence, batch.may_be_written, batch) for batch in self.resend]
        lost: list[B] = []
        start = open_numbers[0][0] if open_numbers else 0
        for number, _, _ in open_numbers:
            start = number if _before(number, start) else start
        for _, may_be_written, batch in sorted(open_numbers, key=lambda one: (one[0] - start) % 2**31):
            if not may_be_written:
                break
            if batch is not None:
                lost.append(batch)
        self.resend = [batch for batch in self.resend if batch not in lost]
        self.producer = producer
        self.next_sequence = 0
        for batch in self.resend:
            batch.may_be_written = False
            batch.restamp(producer, self.next_sequence)
            self.next_sequence = advance(self.next_sequence, len(batch.records))
        self.missing.clear()
        self.restart = False
        return lost

    def reconnected(self) -> None:
        """The partition's broker was unreachable, and may have lost this producer's state."""
        self.accepted_id = NO_PRODUCER[0]

    # -- results

    def answered(self, batch: B, code: ErrorCode, in_transaction: bool) -> Verdict:
        """The broker's code for a batch that is in flight."""
        if code in _ACCEPTED:
            return self._accepted(batch)
        lost_state = code in LOST_SEQUENCE or (code in FENCED_EPOCH and not in_transaction)
        if lost_state:
            first = self.is_first_unresolved(batch)
            if first and in_transaction:
                return self._out(batch, Verdict.REJECTED)
            self.restart |= first
            self.accepted_id = NO_PRODUCER[0] if first else self.accepted_id
            return self._back(batch)
        if code in TOO_LARGE and len(batch.records) > 1 and not batch.given_up:
            self._back(batch)
            return Verdict.SPLIT
        if code.retriable:
            batch.may_be_written |= code not in _NOT_APPENDED
            return self._back(batch)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            batch.may_be_written = True
        return self._out(batch, Verdict.REJECTED)

    def unanswered(self, batch: B, *, sent: bool) -> Verdict:
        """The connection ended or was never made; `sent` if bytes may have reached the broker."""
        batch.may_be_written |= sent
        return self._back(batch)

    def give_up(self, batch: B) -> bool:
        """The deadline of a batch with a sequence is over; returns False while its response is still awaited."""
        if batch in self.in_flight:
            batch.given_up = True
            return False
        self.resend.remove(batch)
        self._miss(batch)
        return True

    def drop_resend(self) -> list[B]:
        """Remove all batches that were to be resent."""
        dropped, self.resend = self.resend, []
        for batch in dropped:
            self._miss(batch)
        return dropped

    def replace(self, batch: B, parts: list[B]) -> None:
        """Replace a batch by its parts, with consecutive sequences."""
        at = self.resend.index(batch)
        number = batch.base_sequence
        for part in parts:
            part.base_sequence, part.may_be_written = number, batch.may_be_written
            number = advance(number, len(part.records))
        self.resend[at : at + 1] = parts

    def _accepted(self, batch: B) -> Verdict:
        self.in_flight.remove(batch)
        self.accepted_id = self.producer[0]
        if self.missing:
            # The broker accepted it as their successor: those before it were appended after all.
            self.missing = [one for one in self.missing if not _before(one.base_sequence, batch.base_sequence)]
        return Verdict.GONE if batch.given_up else Verdict.ACCEPTED

    def _back(self, batch: B) -> Verdict:
        if batch.given_up:
            return self._out(batch, Verdict.GONE)
        self.in_flight.remove(batch)
        place = 0
        while place < len(self.resend) and _before(self.resend[place].base_sequence, batch.base_sequence):
            place += 1
        self.resend.insert(place, batch)
        return Verdict.AGAIN

    def _out(self, batch: B, verdict: Verdict) -> Verdict:
        self.in_flight.remove(batch)
        self._miss(batch)
        return Verdict.GONE if batch.given_up else verdict

    def _miss(self, batch: B) -> None:
        self.missing.append(Missing(batch.base_sequence, batch.may_be_written))


def bumped(producer: Producer) -> Producer | None:
    """The identity with the next epoch; None at the end of the epochs, when another id is needed (row P12)."""
    producer_id, epoch = producer
    return (producer_id, epoch + 1) if epoch < HIGHEST_EPOCH else None


def _before(one: int, other: int) -> bool:
    """Whether `one` is the earlier sequence; few batches are open at once, so half of the number range decides."""
    return 0 < (other - one) % 2**31 < 2**30
