"""The controller's access to the metadata log: it writes whole changes, one at a time, and publishes durable images.

A change that fits into one append is one atomic batch. A larger one becomes a KIP-868 transaction, Begin to End over
several appends. Until it has ended the controller makes no other decision, so no other record can come between.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import trio

from fencepost.coordinator.metadata.delta import Change, TopicDeleted
from fencepost.coordinator.metadata.features import TRANSACTIONS_SINCE
from fencepost.coordinator.metadata.image import EMPTY_IMAGE, METADATA_VERSION, MetadataImage
from fencepost.coordinator.metadata.ports import Bounds, LoggedBatch, MetadataLog, Observer
from fencepost.coordinator.metadata.transactions import MetadataLoader, OpenTransaction
from fencepost.coordinator.ports import Clock, LogSuperseded, LogWriteFailed, Ticket
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_entries import MetadataEntry, PartitionRun, record_count
from fencepost.protocol.metadata_record_types import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from fencepost.protocol.metadata_records import encode_metadata_records

FAILOVER = "Controller failover"
"""The reason in the Abort of a transaction that another controller or process left open; Kafka's words."""

logger = logging.getLogger(__name__)


class ChangeRefused(LogWriteFailed):
    """A change was refused because it is too large or took too long. Nothing of it becomes visible."""


class _Pending(NamedTuple):
    """A state that is appended and not durable yet."""

    end_offset: int
    image: MetadataImage
    changes: Sequence[Change]


class Piece(NamedTuple):
    """The records of one append."""

    entries: list[MetadataEntry]
    values: list[bytes]


class MetadataJournal:
    """The metadata log and two images of it: `newest`, and `image`, the newest durable one.

    Decisions are made on `newest`. It is ahead of `image` by the appends that are not durable yet: if these are lost,
    `_revert` drops them. `active` is whether this is the controller; a conflict at an append ends that.
    """

    def __init__(self, log: MetadataLog, clock: Clock, bounds: Bounds, observer: Callable[[], Observer | None]) -> None:
        self.image = EMPTY_IMAGE
        """The newest durable image, which clients may see."""
        self.active = False
        self.bounds = bounds
        self.deleted_topic_ids: set[bytes] = set()
        """The deleted topics in the log, without those that `forget_deleted` removed."""
        self.bytes_read = 0
        """Bytes of records that this process has read or written."""
        self._log = log
        self._clock = clock
        self._observer = observer
        self._loader = MetadataLoader()
        self._pending: deque[_Pending] = deque()
        self._ended = trio.Event()
        self._ended.set()

    @property
    def newest(self) -> MetadataImage:
        """The image with all appended records, durable or not."""
        return self._loader.image

    @property
    def open(self) -> OpenTransaction | None:
        """The transaction that is open at the end of the log."""
        return self._loader.open

    @property
    def next_record_offset(self) -> int:
        """The offset of the next change's first record, if the change has no name and fits into one append."""
        return self._log.end_offset + (self._loader.open is not None)

    @property
    def is_aligned(self) -> bool:
        """Whether `image` ends at the end of the log and of a batch, without an open transaction or a pending append.

        Only there may a snapshot be taken: not within a transaction, and not within a batch, because no reader could
        continue from there (kafka-rules E.4).
        """
        return not self._pending and self._loader.open is None and self.image.offset == self._log.end_offset

    # Reading

    def begin(self, image: MetadataImage | None) -> None:
        """Start with the image of a snapshot (None: there is none) and read the log from there to its end.

        Raises MetadataCorrupt if an undamaged record cannot be decoded or applied, LogUnreadable for damage.
        """
        if image is not None:
            self._log.seek(image.offset)
        self._loader = MetadataLoader(EMPTY_IMAGE if image is None else image)
        self._loader.holding = True
        for batch in self._log.read():
            self._load(batch)
        self._pending.clear()
        self.image = self._loader.release()
        self.deleted_topic_ids |= self._loader.deleted_topic_ids
        self._loader.deleted_topic_ids.clear()

    def catch_up(self) -> None:
        """Read the batches of other controllers; these are durable already, so `settle` publishes them. Raises as
        `begin`.
        """
        for batch in self._log.read():
            changes = self._load(batch)
            self._pending.append(_Pending(batch.next_offset, self._loader.image, changes))

    def _load(self, batch: LoggedBatch) -> tuple[Change, ...]:
        if batch.values is None:
            self._loader.pass_over(batch.base_offset, batch.next_offset)
            return ()
        self.bytes_read += sum(map(len, batch.values))
        return self._loader.load_batch(batch.base_offset, batch.entries())

    # Writing

    async def wait_writable(self) -> None:
        """Return when no transaction is being written; without a checkpoint if none is now.

        Until the next checkpoint only the caller may append. Raises LogWriteFailed (NOT_CONTROLLER) if another
        controller has taken over.
        """
        while not self._ended.is_set():
            await self._ended.wait()
        if not self.active:
            raise LogWriteFailed(ErrorCode.NOT_CONTROLLER, "another controller has taken over")

    def claim(self) -> None:
        """Become the controller at the end of the log as read so far; first abort the transaction that is open there.

        If another controller appends too, the log refuses one of the two. Raises LogWriteFailed.
        """
        self.active = True
        if self._loader.open is not None:
            self._append(_piece([AbortTransactionRecord(FAILOVER)]))

    def fence(self) -> None:
        """Append a NoOp record that an older controller has not read, so that its next append conflicts."""
        self._append(_piece([NoOpRecord()]))

    async def write(self, entries: Sequence[MetadataEntry], transaction: str | None = None) -> None:
        """Append one change after `wait_writable`: one atomic batch if it fits; else, or under a name, a transaction.

        A single batch needs no checkpoint. A transaction that is still open, because the log refused its Abort, is
        aborted first. Raises LogWriteFailed; then nothing of the change becomes visible, now or later.
        """
        whole = self._whole(entries, transaction)
        if whole is not None:
            self._append(whole)
            return
        if not self.has_transactions:
            raise ChangeRefused(
                ErrorCode.POLICY_VIOLATION,
                f"{record_count(entries)} records do not fit into one append, and the metadata.version knows no"
                " transactions",
            )
        self._ended = trio.Event()
        try:
            with trio.CancelScope(shield=True):  # the caller may be cancelled; a begun transaction is ended
                await self._write_transaction(entries, transaction)
        finally:
            self._ended.set()

    def write_at_once(self, entries: Sequence[MetadataEntry], transaction: str | None = None) -> None:
        """As `write`, for small changes at the start, when no other task writes. Raises LogWriteFailed."""
        pieces = [*self._pieces(self._framed(entries, transaction))]
        for piece in pieces:
            self._append(piece)

    @property
    def has_transactions(self) -> bool:
        """Whether a change with a name is framed by the records of a transaction."""
        level = self.newest.features.get(METADATA_VERSION, 0)
        return level == 0 or level >= TRANSACTIONS_SINCE

    def _whole(self, entries: Sequence[MetadataEntry], transaction: str | None) -> Piece | None:
        """The change as one append; None if it does not fit."""
        if transaction is not None and self.has_transactions:
            framed = self._framed(entries, transaction)
        else:
            framed = self._after_abort(entries)
        if record_count(framed) > self.bounds.append_records_max:
            return None
        piece = _piece(framed)
        return piece if sum(map(len, piece.values)) <= self.bounds.append_bytes_max else None

    def _after_abort(self, entries: Sequence[MetadataEntry]) -> list[MetadataEntry]:
        open_before: list[MetadataEntry] = [AbortTransactionRecord(FAILOVER)] if self._loader.open is not None else []
        return [*open_before, *entries]

    def _framed(self, entries: Sequence[MetadataEntry], transaction: str | None) -> list[MetadataEntry]:
        return self._after_abort([BeginTransactionRecord(transaction), *entries, EndTransactionRecord()])

    async def _write_transaction(self, entries: Sequence[MetadataEntry], name: str | None) -> None:
        """Write the change as a transaction, in one commit if the store can do that.

        Raises LogWriteFailed, after an Abort if that can be written.
        """
        with self._log.in_one_commit() as together:
            await self._write_pieces(self._framed(entries, name), together)
        if together:
            await self._durable(self._log.newest)

    async def _write_pieces(self, entries: Sequence[MetadataEntry], together: bool) -> None:
        began, size_bytes = self._clock.monotonic(), 0
        try:
            for piece in self._pieces(entries):
                size_bytes += sum(map(len, piece.values))
                seconds = self._clock.monotonic() - began
                if size_bytes > self.bounds.transaction_bytes_max:
                    raise ChangeRefused(
                        ErrorCode.POLICY_VIOLATION,
                        f"a transaction has at most {self.bounds.transaction_bytes_max} bytes of metadata",
                    )
                if seconds > self.bounds.transaction_seconds_max:
                    raise ChangeRefused(
                        ErrorCode.REQUEST_TIMED_OUT, f"the transaction was not written after {seconds:.0f} s"
                    )
                self._append(piece)
                await trio.lowlevel.checkpoint()
                if not together:
                    await self._durable(self._log.newest)
        except LogWriteFailed as error:
            if self.active and self._loader.open is not None:
                with suppress(LogWriteFailed):
                    self._append(_piece([AbortTransactionRecord(f"The change was given up: {error}"[:255])]))
            raise

    def _pieces(self, entries: Sequence[MetadataEntry]) -> Iterator[Piece]:
        """The entries in appends within the bounds on records and bytes, each encoded only when it is needed."""
        waiting, values, size_bytes = list[MetadataEntry](), list[bytes](), 0
        for entry in entries:
            rest: MetadataEntry | None = entry
            while rest is not None:
                records, room = self.bounds.append_records_max - len(values), self.bounds.append_bytes_max - size_bytes
                part, rest = _cut(rest, max(records, 1))
                encoded = encode_metadata_records((part,))
                more_bytes = sum(map(len, encoded))
                if values and (not records or more_bytes > room):
                    yield Piece(waiting, values)
                    waiting, values, size_bytes = [], [], 0
                waiting.append(part)
                values += encoded
                size_bytes += more_bytes
        yield Piece(waiting, values)

    def _append(self, piece: Piece) -> None:
        """Append one batch and apply it. Raises LogWriteFailed; then only `active` may have changed."""
        base_offset = self._log.end_offset
        try:
            self._log.append(piece.values, self._clock.now_ms())
        except LogSuperseded as error:
            raise self._stepping_down(error) from error
        self.bytes_read += sum(map(len, piece.values))
        changes = self._loader.load_batch(base_offset, piece.entries)
        self._pending.append(_Pending(self._log.end_offset, self._loader.image, changes))

    # Publishing

    async def settle(self) -> None:
        """Return when all appends are durable and published. Raises LogWriteFailed if they never will be: then they are
        reverted, and this is no longer the controller.
        """
        end_offset, ticket = self._log.end_offset, self._log.newest
        with trio.CancelScope(shield=True):  # appended records must become visible, even if the caller is cancelled
            await self._durable(ticket)
        self.publish(end_offset)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Within, no other task changes the metadata, and all changes before are durable and published. Raises as
        `wait_writable` and `settle`.
        """
        await self.wait_writable()
        self._ended = trio.Event()
        try:
            await self.settle()
            yield
        finally:
            self._ended.set()

    async def _durable(self, ticket: Ticket) -> None:
        try:
            await ticket.durable()
        except LogWriteFailed as error:
            self._revert()
            if isinstance(error, LogSuperseded):
                raise self._stepping_down(error) from error
            raise

    def _stepping_down(self, error: LogSuperseded) -> LogSuperseded:
        self.active = False
        logger.error("another controller has written to the metadata log, this one steps down: %s", error)
        return LogSuperseded(ErrorCode.NOT_CONTROLLER, str(error))

    def publish(self, end_offset: int) -> None:
        """Publish every state up to `end_offset` in `image`, in order, and notify the observer."""
        while self._pending and self._pending[0].end_offset <= end_offset:
            pending = self._pending.popleft()
            self.image = pending.image
            gone = (change.topic.topic_id for change in pending.changes if isinstance(change, TopicDeleted))
            self.deleted_topic_ids.update(gone)
            self._loader.deleted_topic_ids.clear()  # the published ones are in self.deleted_topic_ids
            observer = self._observer()
            if observer is not None and pending.changes:
                observer(pending.changes)

    def _revert(self) -> None:
        """Drop everything that is not durable: return to the published image."""
        self.active = False
        self._pending.clear()
        self._loader = MetadataLoader(self.image)
        self._log.seek(self.image.offset)


def _piece(entries: list[MetadataEntry]) -> Piece:
    return Piece(entries, encode_metadata_records(entries))


def _cut(entry: MetadataEntry, most: int) -> tuple[MetadataEntry, MetadataEntry | None]:
    """The first `most` records of a run, and the rest; any other entry unchanged."""
    if not isinstance(entry, PartitionRun) or entry.length <= most:
        return entry, None
    return entry.between(0, most), entry.between(most, entry.length)
