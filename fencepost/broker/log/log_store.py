"""The interface between rules and bytes: all that partitions, coordinators and metadata may know of a log's storage.

The rules are above it (producers, the last stable offset, valid appends), the bytes below it. `SegmentStore` keeps logs
as Kafka's segment files, on disk or in memory; another store (a database, an object store) would be an alternative to
it. One suite of tests, tests/unit/log/test_log_store.py, specifies every store.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.epochs import LeaderEpochs
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.retention import SegmentFacts
from fencepost.broker.log.storage.checkpoints import NO_TOPIC_ID
from fencepost.broker.log.storage.store import Bytes, Piece, Staging, Store, SyncTask
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.batch_header import BatchHeader


class Conflict(NamedTuple):
    """Another writer was first: the log does not end where the caller expected. Nothing was changed.

    The end offset of a log is its version: a caller that decides by the log's content passes the offset it has read to.
    """

    expected_offset: int
    actual_offset: int


class Missing:
    """Bytes that a read needs are not in this process yet; the store loads them. Read again when they `arrived`."""

    __slots__ = ("arrived",)

    def __init__(self) -> None:
        self.arrived = False


class Extent(NamedTuple):
    """The result of a read: pieces in order, their total bytes, and the offset after the last batch."""

    parts: list[Piece]
    size_bytes: int
    end_offset: int
    missing: Missing | None = None
    """Set if bytes are missing; then the other fields mean nothing."""


class FoundTime(NamedTuple):
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int


class RowListener(Protocol):
    """The broker's callbacks for a store that binds offsets late, called on the event loop. Rows are whole batches."""

    def bound(self, end_offset: int) -> None:
        """All waiting appends below `end_offset` are durable and visible at their expected offsets."""

    def foreign(self, rows: Sequence[Bytes]) -> None:
        """Durable rows of other writers have the offsets that the first waiting append expected.

        The store has dropped every waiting append. The listener appends the still valid ones again before it returns,
        in the same order.
        """

    def arrived(self) -> None:
        """The bytes that a read missed are in this process now."""


class LateLog(Protocol):
    """The part of a `StoredLog` whose appends are bound to offsets later: other brokers write to the same log."""

    def follow(self, listener: RowListener) -> None:
        """Report the results of appends, and the rows of other writers, to `listener`."""

    def fix_newest(self) -> None:
        """The newest append may only be bound at its expected offset: rows of other writers reject it."""

    def hold(self) -> None:
        """Commit nothing more until `release`: then one commit has everything appended meanwhile."""

    def release(self) -> None:
        """Commit what waits."""

    def deliver(self) -> None:
        """Report the results of the last `sync_targets`, which a thread synced, to the listener on the event loop."""


class StoredLog(Protocol):
    """One log's batches by offset. Appends and reads never wait; `sync_targets` make batches durable."""

    late: LateLog | None
    """None if an append is bound when it returns. Otherwise `end_offset` includes the waiting appends."""
    unflushed: bool
    """Whether the last `sync_targets` omitted bytes that are not in the log's files yet: the disk was full."""
    written_batches: int
    """A count of appends."""
    keeps_producers: bool
    """Whether the store keeps what the producers' state needs of the pieces that it drops; they may be all pieces."""

    @property
    def first_offset(self) -> int:
        """The first offset of the oldest piece."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get."""

    @property
    def size_bytes(self) -> int:
        """Bytes of batches."""

    @property
    def written_bytes(self) -> int:
        """A count of bytes that grows with every append and never falls; its first value is arbitrary."""

    def __len__(self) -> int:
        """The number of pieces (segments)."""

    # Appending

    def must_roll(self, size_bytes: int, header: BatchHeader, now_ms: int, config: LogConfig) -> bool:
        """Whether a batch of that size begins a new piece (row L1); the log takes a producer snapshot there."""

    def roll(self, now_ms: int) -> None:
        """Begin a new piece at the end."""

    def append(self, expected_offset: int, batch: Bytes, header: BatchHeader, config: LogConfig) -> Conflict | None:
        """Write one batch if the log ends at `expected_offset`, which the batch's bytes carry (`header` need not).

        Raises OSError. After an error or a Conflict nothing has changed.
        """

    def stage(self, head: Bytes, batch: Bytes) -> Staging | None:
        """A task for a thread that prepares the append of `batch`, or None if nothing can be prepared. Raises OSError.

        It helps if the next append is of the same object `batch`, whose first bytes are `head` by then. Any other
        append before it invalidates it.
        """

    def unstage(self, staged: Staging) -> None:
        """Undo `stage`, unless its batch was appended."""

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Record that the marker just appended aborts this transaction, for readers (row I3)."""

    # Reading

    def read(self, offset: int, upper_offset: int, max_bytes: int, at_least_one: bool) -> Extent:
        """Whole batches from `offset` below `upper_offset`, at most `max_bytes` (except for one large batch).

        Raises CorruptLogFile and OSError.
        """

    def bytes_between(self, offset: int, upper_offset: int) -> int:
        """Bytes of the batches from `offset` below `upper_offset`. Raises CorruptLogFile and OSError."""

    def aborted_between(self, offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Every aborted transaction that overlaps [offset, upper_offset) (row I2), ordered by first offset."""

    def first_at_or_after(self, timestamp_ms: int, start_offset: int, upper_offset: int) -> FoundTime | Missing | None:
        """The first record in [start_offset, upper_offset) with at least `timestamp_ms` (row I6). Raises as `read`."""

    def latest(self, start_offset: int, upper_offset: int) -> FoundTime | Missing | None:
        """The first record with the largest timestamp in that range (KIP-734). Raises as `read`."""

    # Keeping and dropping

    def facts(self) -> list[SegmentFacts]:
        """The facts that retention needs of each piece, oldest first. Raises OSError."""

    def drop_front(self, count: int) -> list[SyncTask]:
        """Remove the oldest `count` pieces; the last one stays. Raises OSError.

        Returns tasks that free their space when synced, which can be slow; the next start repeats tasks not done.
        """

    def create(self) -> None:
        """Create the last piece even if it is empty, because it holds the next offset. Raises OSError."""

    # Durability

    @property
    def is_deleted(self) -> bool:
        """Whether the file that is appended to was deleted by others: nothing of what it gets can become durable."""

    @property
    def has_unsynced_closed(self) -> bool:
        """Whether a closed piece is not covered by any `sync_targets`, also one of the last run."""

    @property
    def closed_since_sync(self) -> int:
        """The number of pieces closed since the last `sync_targets`."""

    def sync_targets(self) -> list[SyncTask]:
        """The tasks that make all batches so far durable. Raises OSError.

        Until `synced` says that they are done, the next call returns them again.
        """

    def synced(self) -> None:
        """The tasks of the last `sync_targets` are done."""

    def writeback(self, max_bytes: int) -> tuple[int, list[SyncTask]]:
        """At most `max_bytes` of the oldest unflushed bytes: their number, and tasks that write them to the disk
        without making them durable. Raises OSError.
        """

    def reserve(self, size_bytes: int) -> None:
        """Expect small flushes: reserve `size_bytes` in the file (`StoredFile.reserve`)."""

    def rewrite_tail(self, offset: int) -> None:
        """Write all batches from `offset` on again: a flush of them may have failed, and only bytes that are written
        again are surely flushed. Raises OSError.
        """

    def tail_targets(self, offset: int) -> list[SyncTask]:
        """The tasks that make all batches from `offset` on durable. Raises OSError."""

    def seal_targets(self) -> list[SyncTask] | None:
        """Like `sync_targets`, with all that recovery needs to start at the current end; None if the disk is full."""

    def flush_indexes(self) -> bool:
        """Write all index entries in memory to the files. Returns False if the disk fails."""

    def close(self) -> None: ...


class OpenedLog(Protocol):
    """An opened log, with the state that recovery built from it."""

    @property
    def segments(self) -> StoredLog: ...

    @property
    def producers(self) -> ProducerStates:
        """The state of its producers (row P9)."""

    @property
    def epochs(self) -> LeaderEpochs:
        """The start offsets of the leader epochs (row L10)."""


class LogStore(Protocol):
    """Logs by name. One append changes one log. Records in one log make changes of several logs atomic (PREPARE in the
    transaction log, Begin and End in the metadata log)."""

    @property
    def place(self) -> str:
        """The location of the logs, for messages."""

    def names(self) -> list[str]:
        """Every log, open or not."""

    def open(
        self, name: str, config: LogConfig, log_start_offset: int, trusted_offset: int, topic_id: bytes = NO_TOPIC_ID
    ) -> OpenedLog:
        """Open a log, or create it; batches below `trusted_offset` were durable and are not checked again.

        Raises OSError, and CorruptLogFile if trusted bytes are not batches.
        """

    def files(self, name: str) -> Store:
        """The small files beside a log: snapshots, leader epochs, identity."""

    def start_targets(self, starts: Mapping[str, int]) -> list[SyncTask]:
        """The tasks that store the start offsets of logs, where the store keeps them, and not the data directory."""

    def rename(self, name: str, to: str) -> None:
        """Rename a log that is not open. Raises OSError."""

    def delete(self, name: str, via: str) -> list[SyncTask]:
        """Rename a log that is not open to `via`. Returns tasks that delete its files when synced. Raises OSError."""
