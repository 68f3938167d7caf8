"""Appends whose offsets are bound later: the store confirms, shifts or supersedes them.

`PartitionLog.producers` is the state after the rows in the log and the waiting appends. `_bound` is the state after the
rows alone. When rows of another writer come first, the log rewinds to `_bound` and applies those rows as recovery
would. Then it checks every waiting append again by the same rules as the first time (rows P2 to P5, T9, T16; why:
docs/decisions/0051-tickets-and-late-appends.md).
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.epochs import LeaderEpochs
from fencepost.broker.log.log_store import LateLog, StoredLog
from fencepost.broker.log.producer_entries import BatchMetadata, ProducerEntry
from fencepost.broker.log.producer_state import ALREADY_OPEN, AppendOrigin, ProducerStates, Refusal, VerificationGuard
from fencepost.broker.log.recovery.scanning import replay
from fencepost.broker.log.results import FlushedLog, LogFollower, Ticket
from fencepost.broker.log.storage.store import Bytes
from fencepost.broker.log.validation import Accepted
from fencepost.protocol.batch_header import BatchHeader, read_header
from fencepost.protocol.errors import ErrorCode


class _Log(FlushedLog, Protocol):
    """The part of `PartitionLog` that this module uses and changes."""

    config: LogConfig
    segments: StoredLog
    producers: ProducerStates
    epochs: LeaderEpochs
    follower: LogFollower | None

    def write_row(
        self, base_offset: int, data: bytearray | memoryview, header: BatchHeader, now_ms: int
    ) -> Refusal | None: ...

    def advance_high_watermark(self, offset: int) -> None: ...
    def wake(self) -> None: ...


class _Ended(NamedTuple):
    """A transaction that another writer's marker ended."""

    producer_id: int
    next_epoch: int | None
    """The epoch of the producer's next transaction, if the marker bumped it."""


class _Waiting:
    """One append that the store has accepted and not bound yet."""

    __slots__ = (
        "commit",
        "coordinator_epoch",
        "data",
        "fixed",
        "guard",
        "header",
        "is_marker",
        "origin",
        "refused",
        "removed",
        "tickets",
        "transaction_version",
    )

    def __init__(self, data: bytearray, header: BatchHeader, ticket: Ticket, transaction_version: int) -> None:
        self.data = data
        self.header = header
        self.tickets = [ticket]
        """The append's own ticket, then those of requests that repeated it (row P3)."""
        self.refused: list[Ticket] = []
        """Tickets rejected because of rows up to this append: final when this append is durable."""
        self.transaction_version = transaction_version
        self.origin = AppendOrigin.COORDINATOR
        self.guard: VerificationGuard | None = None
        self.fixed = False
        """The append succeeds only at its expected offset."""
        self.removed: VerificationGuard | None = None
        """The guard that this append removed from the producers' state; it is restored if the append is undone."""
        self.is_marker = False
        self.commit = False
        self.coordinator_epoch = 0


class LateAppends:
    """The waiting appends of one log, and its producers' state after the last bound row."""

    def __init__(self, log: _Log, late: LateLog) -> None:
        self._log = log
        self._late = late
        self._stored = log.segments
        self._bound = log.producers.copy()
        self._bound_end = log.segments.end_offset
        self._waiting: deque[_Waiting] = deque()
        late.follow(self)

    def __len__(self) -> int:
        return len(self._waiting)

    # Appending

    def append(
        self,
        accepted: Accepted,
        origin: AppendOrigin,
        transaction_version: int,
        guard: VerificationGuard | None,
        *,
        fixed: bool,
    ) -> Ticket:
        """Append a copy of one checked batch, because the connection reuses the batch's buffer.

        A `fixed` append is rejected if rows of other writers come first.
        """
        ticket = Ticket(self._log, 0, log_append_time_ms=accepted.log_append_time_ms)
        append = _Waiting(bytearray(accepted.batch), accepted.header, ticket, transaction_version)
        append.origin, append.guard, append.fixed = origin, guard, fixed
        self._try(append, again=False)
        return ticket

    def append_marker(
        self, marker: Bytes, header: BatchHeader, commit: bool, coordinator_epoch: int, transaction_version: int
    ) -> Ticket:
        """Append the control batch that ends a producer's transaction here."""
        append = _Waiting(bytearray(marker), header, Ticket(self._log, 0), transaction_version)
        append.is_marker, append.commit, append.coordinator_epoch = True, commit, coordinator_epoch
        self._try(append, again=False)
        return append.tickets[0]

    def newest_ticket(self) -> Ticket | None:
        """The ticket of the newest waiting append, which settles last; None if no append waits."""
        return self._waiting[-1].tickets[0] if self._waiting else None

    def _try(self, append: _Waiting, again: bool) -> None:
        """Check the append at the current log end, and pass it to the store; `again`: after it was undone."""
        if append.fixed and again:
            why = f"{self._log.tp} is written by another broker"
            self._refuse(append, Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, why), again)
            return
        refused = self._try_marker(append) if append.is_marker else self._try_data(append)
        if isinstance(refused, BatchMetadata):
            self._repeat(append, refused)
        elif refused is not None:
            self._refuse(append, refused, again)

    def _try_data(self, append: _Waiting) -> Refusal | BatchMetadata | None:
        header, producers = append.header, self._log.producers
        base_offset = self._stored.end_offset
        if header.producer_id < 0:
            return self._write(append, base_offset)
        admitted = producers.admit(header, base_offset, append.origin, append.transaction_version, append.guard)
        if not isinstance(admitted, ProducerEntry):
            return _verify_again(admitted, append)
        refusal = self._write(append, base_offset)
        if refusal is None:
            append.removed = producers.guard_of(header.producer_id)
            if header.is_transactional and append.guard is None:
                append.guard = self._own_guard(append)
            producers.commit_data(admitted)
        return refusal

    def _own_guard(self, append: _Waiting) -> VerificationGuard:
        """A guard for a coordinator's batch, which has none: if a marker is bound before the batch, it is rejected."""
        header = append.header
        if self._log.producers.has_open(header.producer_id, header.producer_epoch):
            return ALREADY_OPEN
        if append.removed is None:
            append.removed = VerificationGuard(header.producer_epoch, header.base_sequence, append.transaction_version)
        return append.removed

    def _try_marker(self, append: _Waiting) -> Refusal | None:
        header, producers, offset = append.header, self._log.producers, self._stored.end_offset
        identity = header.producer_id, header.producer_epoch
        refusal = producers.check_marker(*identity, append.coordinator_epoch, append.transaction_version)
        refusal = refusal or self._write(append, offset)
        if refusal is None:
            producers.commit_marker(
                *identity,
                append.commit,
                append.coordinator_epoch,
                header.max_timestamp,
                offset,
                append.transaction_version,
            )
        return refusal

    def _write(self, append: _Waiting, base_offset: int) -> Refusal | None:
        refusal = self._log.write_row(base_offset, append.data, append.header, append.header.max_timestamp)
        if refusal is None:
            self._waiting.append(append)
            if append.fixed:
                self._late.fix_newest()
            _place(append.tickets, base_offset, base_offset + append.header.last_offset_delta + 1)
        return refusal

    def _refuse(self, append: _Waiting, refusal: Refusal, again: bool) -> None:
        for ticket in append.tickets:
            ticket.refuse(refusal.code, refusal.message, self._stored.end_offset if again else 0)
            ticket.record_errors = refusal.record_errors
        if again and self._waiting:
            self._waiting[-1].refused += append.tickets

    def _repeat(self, append: _Waiting, batch: BatchMetadata) -> None:
        """The batch is a duplicate: its tickets get the result of the first append (row P3)."""
        stamp = self._log.config.stamps_append_time
        for ticket in append.tickets:
            ticket.duplicate = True
            ticket.log_append_time_ms = batch.timestamp_ms if stamp else -1
        _place(append.tickets, batch.first_offset, batch.last_offset + 1)
        for first in self._waiting:
            if first.tickets[0].end_offset == batch.last_offset + 1:
                first.tickets += append.tickets

    # Called by the store: `RowListener`

    def bound(self, end_offset: int) -> None:
        while self._waiting and self._waiting[0].tickets[0].end_offset <= end_offset:
            append = self._waiting.popleft()
            self._fold(self._bound, append.data)
            if append.is_marker and self._log.follower is not None:
                # The task that appended it may be gone: the transaction's coordinator may have moved to another broker.
                self._log.follower.foreign([append.data], refused=False)
        assert self._bound_end == end_offset, "appends are bound in order, each where it was expected"
        self._log.advance_high_watermark(end_offset)

    def foreign(self, rows: Sequence[Bytes]) -> None:
        producers, waiting = self._log.producers, self._waiting
        concerned = {append.header.producer_id for append in waiting} | {read_header(row).producer_id for row in rows}
        newer = {producer_id: producers.guard_of(producer_id) for producer_id in concerned}
        producers.rewind(self._bound)
        ended = [marker for row in rows if (marker := self._absorb(row)) is not None]
        self._waiting = deque()
        for append in waiting:
            refused, append.refused = append.refused, []
            self._put_back(append.header.producer_id, append.removed, ended)
            self._try(append, again=True)
            self._carry(refused)
        for producer_id, guard in newer.items():
            self._put_back(producer_id, guard, ended)
        if self._log.follower is not None:
            # A state that has a waiting append already has it before a marker of the same producer, the log behind it.
            ids = {marker.producer_id for marker in ended}
            is_other = any(append.tickets[0].error or append.header.producer_id in ids for append in waiting)
            self._log.follower.foreign(rows, refused=is_other)
        self._log.advance_high_watermark(self._bound_end)

    def arrived(self) -> None:
        self._log.wake()

    def forget(self) -> None:
        """Drop expired producers (row P10) from the state of the bound rows, too."""
        self._bound.keep_only(self._log.producers)

    def refuse_all(self, refusal: Refusal) -> None:
        """Reject every waiting append: this broker no longer owns the log."""
        waiting, self._waiting = self._waiting, deque()
        for append in waiting:
            for ticket in [*append.tickets, *append.refused]:
                ticket.refuse(refusal.code, refusal.message)

    def _carry(self, refused: list[Ticket]) -> None:
        """Make tickets that were rejected earlier final when the rows now before them are durable."""
        for ticket in refused:
            ticket.end_offset = self._stored.end_offset
        if self._waiting:
            self._waiting[-1].refused += refused

    def _absorb(self, row: Bytes) -> "_Ended | None":
        """Apply a row of another writer to both states. Returns a marker, because it removes guards (row T16)."""
        header = read_header(row)
        entry = self._bound.get(header.producer_id)
        self._fold(self._bound, row)
        replay(self._log.producers, str(self._log.tp), 0, header, memoryview(row))
        if not header.is_control:
            return None
        # Only a marker of transaction version 2 has a higher epoch than the data before it. A guard of that epoch
        # belongs to the next transaction.
        bumped = entry is not None and entry.epoch < header.producer_epoch
        return _Ended(header.producer_id, header.producer_epoch if bumped else None)

    def _put_back(self, producer_id: int, guard: VerificationGuard | None, ended: Sequence["_Ended"]) -> None:
        """Restore a verification, unless one of these markers ended its transaction."""
        markers = [marker for marker in ended if marker.producer_id == producer_id]
        if guard is not None and all(marker.next_epoch == guard.producer_epoch for marker in markers):
            self._log.producers.set_guard(producer_id, guard)

    def _fold(self, producers: ProducerStates, row: Bytes) -> None:
        """Apply the next bound row to `producers`, the aborted index and the leader epochs."""
        header = read_header(row)
        assert header.base_offset == self._bound_end, f"{header.base_offset}, not {self._bound_end}"
        aborted = replay(producers, str(self._log.tp), 0, header, memoryview(row))
        if aborted is not None:
            self._stored.note_aborted(aborted)
        self._log.epochs.note(header.partition_leader_epoch, header.base_offset)
        self._bound_end = header.next_offset


def _verify_again(refused: Refusal | BatchMetadata, append: _Waiting) -> Refusal | BatchMetadata:
    """Let a client send a batch again that lost its verification to a marker of another broker.

    The coordinator may have written the marker before it verified the batch: then the batch is one of the next
    transaction. Otherwise the coordinator refuses it when it comes again.
    """
    was_verified = append.guard is not None and append.origin is AppendOrigin.CLIENT
    if was_verified and isinstance(refused, Refusal) and refused.code is ErrorCode.INVALID_TXN_STATE:
        return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "a marker came first: the batch has to be verified again")
    return refused


def _place(tickets: list[Ticket], base_offset: int, end_offset: int) -> None:
    for ticket in tickets:
        ticket.base_offset, ticket.end_offset = base_offset, end_offset
