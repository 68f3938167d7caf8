"""The state of a partition's producers: sequences, epochs, open and decided transactions. Pure: no I/O, no clock.

A check returns a refusal, a duplicate or the producer's next entry. Only `commit_data` and `commit_marker` change the
state, after the bytes are written (rows P2 to P6, T8, T9, T16, T25, I1).
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
"""The most verifications in progress; without a bound, those whose append never comes would never be removed."""


class AppendOrigin(Enum):
    """The origin of an append: a client's batches are checked in full, a coordinator's carry no sequences (P2)."""

    CLIENT = auto()
    COORDINATOR = auto()


class OpenTransaction(NamedTuple):
    """A transaction without a marker on this partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int


class Refusal(NamedTuple):
    """Why an append is rejected, as the client receives it."""

    code: ErrorCode
    message: str
    record_errors: tuple[tuple[int, str], ...] = ()


class Ended(NamedTuple):
    """The transaction that a marker ended."""

    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool
    last_stable_offset: int
    """The first offset of the oldest transaction that is still open, else the offset after the marker."""


class VerificationGuard:
    """Proof that the coordinator knew the transaction when the append was requested (rows T15 and T16).

    The object's identity is the proof: a marker between verification and append removes the guard. Then the late
    append, which would leave a transaction open permanently, is rejected.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "transaction_version")

    def __init__(self, producer_epoch: int, lowest_sequence: int, transaction_version: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.transaction_version = transaction_version


ALREADY_OPEN = VerificationGuard(NO_EPOCH, NO_SEQUENCE, 0)
"""The guard of a batch whose transaction was open on arrival: if a marker is appended before it, it is rejected."""


class ProducerStates:
    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries: dict[int, ProducerEntry] = {entry.producer_id: entry for entry in entries}
        is_open = [entry for entry in self._entries.values() if entry.txn_first_offset >= 0]
        is_open.sort(key=lambda entry: entry.txn_first_offset)
        self._open: OrderedDict[int, int] = OrderedDict((e.producer_id, e.txn_first_offset) for e in is_open)
        self._decided: list[tuple[int, int]] = []
        self._guards: dict[int, VerificationGuard] = {}

    # Rewinding (`LateAppends`)

    def copy(self) -> "ProducerStates":
        """The same producers and transactions, without the verifications in progress."""
        copied = ProducerStates()
        copied.rewind(self)
        return copied

    def rewind(self, earlier: "ProducerStates") -> None:
        """Return to the state `earlier`; verifications in progress stay."""
        self._entries = dict(earlier._entries)
        self._open = OrderedDict(earlier._open)
        self._decided = list(earlier._decided)

    def keep_only(self, others: "ProducerStates") -> None:
        for producer_id in self._entries.keys() - others._entries.keys():
            del self._entries[producer_id]

    def guard_of(self, producer_id: int) -> VerificationGuard | None:
        return self._guards.get(producer_id)

    def set_guard(self, producer_id: int, guard: VerificationGuard) -> None:
        """Restore a verification that an undone append had ended."""
        self._guards[producer_id] = guard

    # Queries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> Collection[ProducerEntry]:
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
        """First offset of the oldest open transaction: retention keeps its segment."""
        return next(iter(self._open.values()), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """I1: first offset of the oldest transaction that is open, or whose marker is not below the high watermark."""
        self.settle(high_watermark)
        undecided = next(iter(self._open.values()), None)
        if not self._decided:
            return undecided
        decided = self._decided[0][0]
        return decided if undecided is None else min(decided, undecided)

    def settle(self, high_watermark: int) -> None:
        """Drop decided transactions that no longer hold the LSO back; no query's result changes."""
        while self._decided and self._decided[0][1] < high_watermark:
            heapq.heappop(self._decided)

    # Checks

    def admit(
        self,
        header: BatchHeader,
        base_offset: int,
        origin: AppendOrigin,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> ProducerEntry | BatchMetadata | Refusal:
        """Check a data batch at `base_offset`: the producer's next entry, the batch that it repeats, or the refusal."""
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
        """Begin a verification; None if this epoch's transaction is open already and needs no verification.

        Requests that are verified at the same time share one guard, which stores the lowest sequence among them.
        """
        if self.has_open(producer_id, producer_epoch):
            return None
        guard = self._guards.get(producer_id)
        if guard is None or guard.producer_epoch < producer_epoch:
            if len(self._guards) >= GUARDS_MAX:
                del self._guards[next(iter(self._guards))]  # its append, if it still comes, is rejected and retried
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
        """The producer's entry after this data batch at `base_offset`, or the refusal.

        The order of the checks is Kafka's (P2 to P5): verification, epoch, sequence, transaction. `find_duplicate`
        comes before them.
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
        """Whether no marker ended the transaction since `guard` was created: it is open, or the guard is valid."""
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
            return None  # P5, KIP-360: a partition without state for this producer accepts any sequence number
        if header.producer_epoch != entry.epoch:
            return None if sequence == 0 else _out_of_order(header, "a new epoch begins at 0")
        if is_next(entry.last_sequence, sequence):
            return None
        return _out_of_order(header, f"the last one here was {entry.last_sequence}")

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> Refusal | None:
        """The refusal of a marker, or None (T9, T14, T16, T25).

        Up to transaction version 1 the marker's epoch must not be lower than the producer's. From version 2 on it must
        be higher, except for the retry of an appended marker. An older coordinator is fenced.
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

    # Changes

    def commit_data(self, entry: ProducerEntry) -> None:
        """Apply `entry`: its batch is in the log."""
        producer_id = entry.producer_id
        self._entries[producer_id] = entry
        if entry.txn_first_offset >= 0 and producer_id not in self._open:
            self._open[producer_id] = entry.txn_first_offset
        if self._guards:
            self._guards.pop(producer_id, None)

    def replay_data(self, header: BatchHeader) -> None:
        """Apply a data batch during recovery; it was checked when it was appended."""
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
        """Apply a marker in the log at `offset`. Returns the transaction that it ended, or None (row T9)."""
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
        """P10: drop producers idle for at least `expiration_ms` without an open transaction. Returns their number."""
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
        """If there are more than `entries_max`, drop those idle longest until 10% below. Returns their number."""
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
