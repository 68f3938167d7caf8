"""What a partition knows of its producers: sequences, epochs, open and decided transactions. Pure: no I/O, no clock.

A check looks at the state and returns either a refusal, a duplicate or the entry as it would be; only `commit` changes
the state, after the bytes are written (rows P2 to P6, T8, T9, T16, T25, I1).
"""

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from fencepost.broker.log.producer_entries import (
    NO_EPOCH,
    NO_OFFSET,
    BatchMetadata,
    ProducerEntry,
    following,
    with_batch,
)
from fencepost.protocol.batch_header import BatchHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.sequence import NO_SEQUENCE, is_next

GUARDS_MAX = 10_000
"""Verifications under way at once; one whose append never came would otherwise stay for ever."""


class AppendOrigin(Enum):
    """Who appends: a client's batches are checked in full, a coordinator's carry no sequences (P2)."""

    CLIENT = auto()
    COORDINATOR = auto()


class OpenTransaction(NamedTuple):
    """A transaction without a verdict on this partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int


class Refusal(NamedTuple):
    """An append that may not happen, as the client hears it."""

    code: ErrorCode
    message: str
    record_errors: tuple[tuple[int, str], ...] = ()


class Ended(NamedTuple):
    """The transaction that a marker closes."""

    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool
    last_stable_offset: int
    """As if this were the last to end: the first offset of the next open transaction, else the one after the marker."""


class VerificationGuard:
    """Proof that a transaction was known to its coordinator when the append was asked for (rows T15 and T16).

    Its identity is the proof: a marker written between verification and append takes the guard away, and the late
    append, which would leave a transaction open for ever, is refused.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "transaction_version")

    def __init__(self, producer_epoch: int, lowest_sequence: int, transaction_version: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.transaction_version = transaction_version


ALREADY_OPEN = VerificationGuard(NO_EPOCH, NO_SEQUENCE, 0)
"""The guard of a batch whose transaction was open when it came: if a marker is written before it, it is refused."""


class ProducerStates:
    """The producers of one partition."""

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries: dict[int, ProducerEntry] = {entry.producer_id: entry for entry in entries}
        is_open = [entry for entry in self._entries.values() if entry.txn_first_offset >= 0]
        is_open.sort(key=lambda entry: entry.txn_first_offset)
        self._open: OrderedDict[int, int] = OrderedDict((e.producer_id, e.txn_first_offset) for e in is_open)
        self._decided: list[tuple[int, int]] = []
        self._guards: dict[int, VerificationGuard] = {}

    # Going back (`LateAppends`)

    def copy(self) -> "ProducerStates":
        """The same producers and transactions, without the verifications under way."""
        copied = ProducerStates()
        copied.rewind(self)
        return copied

    def rewind(self, earlier: "ProducerStates") -> None:
        """Go back to `earlier`; verifications under way stay."""
        self._entries = dict(earlier._entries)
        self._open = OrderedDict(earlier._open)
        self._decided = list(earlier._decided)

    def keep_only(self, others: "ProducerStates") -> None:
        """Forget the producers that `others` do not know."""
        for producer_id in self._entries.keys() - others._entries.keys():
            del self._entries[producer_id]

    def guard_of(self, producer_id: int) -> VerificationGuard | None:
        """The verification under way for a producer."""
        return self._guards.get(producer_id)

    def set_guard(self, producer_id: int, guard: VerificationGuard) -> None:
        """Put a verification back that an append, undone since, had ended."""
        self._guards[producer_id] = guard

    # Looking

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """The producer's entry, or None for one that never wrote here (or was forgotten)."""
        return self._entries.get(producer_id)

    def entries(self) -> Collection[ProducerEntry]:
        """All of them."""
        return self._entries.values()

    def has_open(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        """Whether the producer (in that epoch, if given) has a transaction open here."""
        if producer_id not in self._open:
            return False
        return producer_epoch is None or self._entries[producer_id].epoch == producer_epoch

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """The open transactions by rising first offset."""
        for producer_id, first_offset in self._open.items():
            entry = self._entries[producer_id]
            yield OpenTransaction(producer_id, entry.epoch, first_offset, entry.last_timestamp_ms)

    def first_undecided_offset(self) -> int | None:
        """First offset of the oldest transaction without a verdict: its segment is not deleted."""
        return next(iter(self._open.values()), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """I1: the oldest offset that is undecided, or decided by a marker that is not yet below the high watermark."""
        self.settle(high_watermark)
        undecided = next(iter(self._open.values()), None)
        if not self._decided:
            return undecided
        decided = self._decided[0][0]
        return decided if undecided is None else min(decided, undecided)

    def settle(self, high_watermark: int) -> None:
        """Let go of decided transactions that no longer hold the LSO back; the answer to no question changes."""
        while self._decided and self._decided[0][1] < high_watermark:
            heapq.heappop(self._decided)

    # Checking

    def admit(
        self,
        header: BatchHeader,
        base_offset: int,
        origin: AppendOrigin,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> ProducerEntry | BatchMetadata | Refusal:
        """What a data batch at `base_offset` makes of its producer; the batch it repeats; or why it may not be."""
        if origin is AppendOrigin.CLIENT:
            entry = self._entries.get(header.producer_id)
            if entry is not None and guard is None and not self._guards:
                usual = following(entry, header, base_offset)
                if usual is not None:
                    return usual
            duplicate = self.find_duplicate(header)
            if duplicate is not None:
                return duplicate
        return self.check_data(header, base_offset, origin, transaction_version, guard)

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """P3: the batch among the last five that has the same epoch, first and last sequence."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in entry.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def guard(self, producer_id: int, producer_epoch: int, sequence: int, version: int) -> VerificationGuard | None:
        """Begin a verification; None where this epoch's transaction is open already and nothing need be verified.

        Requests that are verified at the same time share one guard, which keeps the lowest sequence among them.
        """
        if self.has_open(producer_id, producer_epoch):
            return None
        guard = self._guards.get(producer_id)
        if guard is None or guard.producer_epoch < producer_epoch:
            if len(self._guards) >= GUARDS_MAX:
                del self._guards[next(iter(self._guards))]  # its append, if it still comes, is refused and tried again
            guard = self._guards[producer_id] = VerificationGuard(producer_epoch, sequence, version)
        elif guard.producer_epoch == producer_epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        return guard

    def check_data(
        self,
        header: BatchHeader,
        base_offset: int,
        origin: AppendOrigin,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> ProducerEntry | Refusal:
        """The producer's entry after this data batch would be at `base_offset`, or why it may not be.

        The order of the tests is Kafka's (P2 to P5): verification, epoch, sequence, transaction. Duplicates are
        looked for before (`find_duplicate`).
        """
        entry = self._entries.get(header.producer_id)
        if guard is not None and not self._holds(guard, header):
            return Refusal(ErrorCode.INVALID_TXN_STATE, "the transaction ended before its batch could be appended")
        if entry is not None and header.producer_epoch < entry.epoch:
            return Refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} is at epoch {entry.epoch}, the batch is of {header.producer_epoch}",
            )
        if origin is AppendOrigin.CLIENT:
            refusal = self._check_sequence(header, entry, transaction_version)
            if refusal is not None:
                return refusal
        if entry is not None and entry.txn_first_offset >= 0 and not header.is_transactional:
            return Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open here, the batch is not part of it",
            )
        return with_batch(entry, header, base_offset)

    def _holds(self, guard: VerificationGuard, header: BatchHeader) -> bool:
        """Whether nothing ended the transaction since `guard` was given: it is open, or the guard still stands."""
        if self.has_open(header.producer_id, header.producer_epoch):
            return True
        return self._guards.get(header.producer_id) is guard

    def _check_sequence(
        self, header: BatchHeader, entry: ProducerEntry | None, transaction_version: int
    ) -> Refusal | None:
        sequence = header.base_sequence
        in_transaction = header.producer_id in self._open
        fresh = entry is None or not entry.batches
        if transaction_version >= 2 and header.is_transactional and not in_transaction and sequence != 0 and fresh:
            return _out_of_order(header, "a transaction of version 2 on a partition without state begins at 0")
        guard = self._guards.get(header.producer_id)
        if guard is not None and guard.producer_epoch == header.producer_epoch and sequence > guard.lowest_sequence:
            return _out_of_order(header, f"a batch of sequence {guard.lowest_sequence} is being verified before it")
        if entry is None or entry.epoch == NO_EPOCH:
            return None  # P5, KIP-360: without state any sequence will do
        if header.producer_epoch != entry.epoch:
            return None if sequence == 0 else _out_of_order(header, "a new epoch begins at 0")
        if is_next(entry.last_sequence, sequence):
            return None
        return _out_of_order(header, f"the last one here was {entry.last_sequence}")

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Refusal | None:
        """Why a marker may not be written, or None (T9, T14, T16, T25).

        Up to transaction version 1 the marker's epoch must not be lower than the producer's; from version 2 on it must
        be higher, but for the retry of a marker that is already there. An older coordinator is fenced.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        strict = transaction_version >= 2
        if producer_epoch < entry.epoch or (strict and producer_epoch == entry.epoch):
            retried = strict and producer_epoch == entry.epoch and entry.txn_first_offset < 0
            if not retried:
                return Refusal(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"marker of epoch {producer_epoch} for producer {producer_id}, which is at epoch {entry.epoch}"
                    f" (transaction version {transaction_version})",
                )
        if coordinator_epoch < entry.coordinator_epoch:
            return Refusal(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"marker of coordinator epoch {coordinator_epoch}, one of {entry.coordinator_epoch} was here before",
            )
        return None

    # Changing

    def commit_data(self, entry: ProducerEntry) -> None:
        """The batch behind `entry` is in the log."""
        producer_id = entry.producer_id
        self._entries[producer_id] = entry
        if entry.txn_first_offset >= 0 and producer_id not in self._open:
            self._open[producer_id] = entry.txn_first_offset
        if self._guards:
            self._guards.pop(producer_id, None)

    def replay_data(self, header: BatchHeader) -> None:
        """A data batch of the log is met again at start; it was checked when it was written."""
        entry = self._entries.get(header.producer_id)
        self.commit_data(with_batch(entry, header, header.base_offset))

    def commit_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        timestamp_ms: int,
        offset: int,
        transaction_version: int = 0,
    ) -> Ended | None:
        """A marker is in the log at `offset`; returns the transaction it ended, None where none was open (row T9)."""
        entry = self._entries.get(producer_id)
        same_epoch = entry is not None and entry.epoch == producer_epoch
        self._entries[producer_id] = ProducerEntry(
            producer_id,
            producer_epoch,
            coordinator_epoch,
            timestamp_ms,
            NO_OFFSET,
            entry.batches if entry is not None and same_epoch else (),
        )
        guard = self._guards.get(producer_id)
        if guard is not None and not (transaction_version >= 2 and guard.producer_epoch == producer_epoch):
            del self._guards[producer_id]  # T16: a guard of the next transaction, of the bumped epoch, stays
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        heapq.heappush(self._decided, (first_offset, offset))
        next_open = next(iter(self._open.values()), offset + 1)
        return Ended(producer_id, first_offset, offset, not commit, next_open)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """P10: forget producers idle for `expiration_ms` or longer, none with an open transaction; how many went."""
        gone = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.txn_first_offset < 0 and now_ms - entry.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in gone:
            del self._entries[producer_id]
            self._guards.pop(producer_id, None)
        return len(gone)

    def shrink(self, entries_max: int) -> int:
        """Forget the producers idle longest until a tenth below `entries_max`; how many went (0 within the bound)."""
        if len(self._entries) <= entries_max:
            return 0
        idle = [entry for entry in self._entries.values() if entry.txn_first_offset < 0]
        surplus = len(self._entries) - (entries_max - entries_max // 10)
        gone = heapq.nsmallest(surplus, idle, key=lambda entry: entry.last_timestamp_ms)
        for entry in gone:
            del self._entries[entry.producer_id]
            self._guards.pop(entry.producer_id, None)
        return len(gone)


def _out_of_order(header: BatchHeader, why: str) -> Refusal:
    return Refusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} of epoch {header.producer_epoch} sent sequence {header.base_sequence}: {why}",
    )
