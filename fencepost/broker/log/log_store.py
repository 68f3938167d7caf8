"""The seam between rules and bytes: all that partitions, coordinators and metadata may know of what keeps their logs.

Rules live above it (producers, the last stable offset, who may append what), bytes below it. `SegmentStore` keeps logs
as Kafka's segment files, on disk or in memory; another store (a database, an object store) would stand beside it. One
suite of tests, tests/unit/log/test_log_store.py, says what each has to do.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.epochs import LeaderEpochs
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.retention import SegmentFacts
from fencepost.broker.log.storage.store import Bytes, Piece, Staging, Store, SyncTask
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.batch_header import BatchHeader


class Conflict(NamedTuple):
    """Somebody else was here first: the log does not stand where the caller believed. Nothing was changed.

    The position of a log is its version: whoever decides by what he has read says up to where he had read.
    """

    expected_offset: int
    actual_offset: int


class Missing:
    """Bytes that a read needs are not in this process yet, and are on their way: read again when they `arrived`."""

    __slots__ = ("arrived",)

    def __init__(self) -> None:
        self.arrived = False


class Extent(NamedTuple):
    """What a read found: pieces in order, their bytes in all, and the offset after the last batch."""

    parts: list[Piece]
    size_bytes: int
    end_offset: int
    missing: Missing | None = None
    """Why there are no pieces; the rest then says nothing."""


class FoundTime(NamedTuple):
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int


class RowListener(Protocol):
    """The broker's side of a store that binds offsets late; called on the event loop. Rows are whole batches."""

    def bound(self, end_offset: int) -> None:
        """All waiting appends below `end_offset` stand where they were expected, durable and visible."""

    def foreign(self, rows: Sequence[Bytes]) -> None:
        """Rows of other writers stand, durable, where the first waiting append was expected to.

        The store has let go of every waiting append. Those that still hold are appended again before this returns,
        in the same order.
        """

    def arrived(self) -> None:
        """Bytes that a read missed are here."""


class LateLog(Protocol):
    """The part of a `StoredLog` whose appends are bound to offsets later: other brokers write to the same log."""

    def follow(self, listener: RowListener) -> None:
        """Tell `listener` what becomes of appends, and which rows others wrote."""

    def fix_newest(self) -> None:
        """The newest append stands where it was expected to, or nowhere: other writers' rows refuse it."""

    def deliver(self) -> None:
        """Tell the listener, on the event loop, what became of the last `sync_targets`, which a thread synced."""


class StoredLog(Protocol):
    """One log's batches by offset. Appends and reads never wait; durability is asked for with `sync_targets`."""

    late: LateLog | None
    """None where an append is bound when it returns. Otherwise `end_offset` counts the appends that wait, too."""
    unflushed: bool
    """Whether the last `sync_targets` left something out that is not in the log's files yet: the disk was full."""
    written_batches: int
    """A count of appends."""

    @property
    def first_offset(self) -> int:
        """Where the oldest piece begins that is kept."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get."""

    @property
    def size_bytes(self) -> int:
        """Bytes of batches."""

    @property
    def written_bytes(self) -> int:
        """A count of bytes that grows with every append and never falls; where it begins says nothing."""

    def __len__(self) -> int:
        """Pieces (segments) that it consists of."""

    # Appending

    def must_roll(self, size_bytes: int, header: BatchHeader, now_ms: int, config: LogConfig) -> bool:
        """Whether a batch of that size begins a new piece (row L1): a good place for a snapshot of what was folded."""

    def roll(self, now_ms: int) -> None:
        """Begin a new piece at the end."""

    def append(self, expected_offset: int, batch: Bytes, header: BatchHeader, config: LogConfig) -> Conflict | None:
        """Write one batch whose bytes carry `expected_offset`, if the log ends there (`header` need not carry it).

        Raises OSError; then, as after a Conflict, nothing has changed.
        """

    def stage(self, head: Bytes, batch: Bytes) -> Staging | None:
        """What a thread can do of the next append ahead of it, if that is of `batch`, this very object, whose first
        bytes are `head` by then; whatever is appended before it wins. None where nothing can be done. Raises OSError.
        """

    def unstage(self, staged: Staging) -> None:
        """Take back what `stage` gave, unless its batch was appended."""

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """The marker just appended aborts this transaction: readers must be told (row I3)."""

    # Reading

    def read(self, offset: int, upper_offset: int, max_bytes: int, at_least_one: bool) -> Extent:
        """Whole batches from `offset` below `upper_offset`, at most `max_bytes` (but for one large batch).

        Raises CorruptLogFile and OSError.
        """

    def bytes_between(self, offset: int, upper_offset: int) -> int:
        """Bytes of the batches from `offset` below `upper_offset`. Raises CorruptLogFile and OSError."""

    def aborted_between(self, offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Every aborted transaction that overlaps [offset, upper_offset) (row I2), ordered by first offset."""

    def first_at_or_after(self, timestamp_ms: int, start_offset: int, upper_offset: int) -> FoundTime | Missing | None:
        """The first record from `start_offset` below `upper_offset` that is not earlier (row I6). Raises as `read`."""

    def latest(self, start_offset: int, upper_offset: int) -> FoundTime | Missing | None:
        """The first record with the largest timestamp in that range (KIP-734). Raises as `read`."""

    # Keeping and dropping

    def facts(self) -> list[SegmentFacts]:
        """What retention needs to know of each piece, oldest first. Raises OSError."""

    def drop_front(self, count: int) -> list[SyncTask]:
        """Take the oldest `count` pieces out; the last one stays. Raises OSError.

        What is returned gives their space back when synced, which can take its time; left out, the next start does it.
        """

    def create(self) -> None:
        """Let the last piece come into being though it is empty: it says where offsets go on. Raises OSError."""

    # Durability

    @property
    def has_unsynced_closed(self) -> bool:
        """Whether a piece was closed that no `sync_targets` has covered, in this run or the last."""

    @property
    def closed_since_sync(self) -> int:
        """How many pieces were closed since the last `sync_targets`."""

    def sync_targets(self) -> list[SyncTask]:
        """What to sync to make all batches so far durable. Raises OSError."""

    def writeback(self, max_bytes: int) -> tuple[int, list[SyncTask]]:
        """At most so many of the oldest bytes that no flush has covered: how many they are, and what brings them to the
        disk, which makes nothing durable. Raises OSError.
        """

    def reserve(self, size_bytes: int) -> None:
        """Expect small flushes: have the file ready for so much more (`StoredFile.reserve`)."""

    def write_again(self, offset: int) -> None:
        """Write all that stands at `offset` and above once more: a flush of it may have failed, and only bytes that are
        written anew are surely flushed. Raises OSError.
        """

    def tail_targets(self, offset: int) -> list[SyncTask]:
        """What to sync to make durable all that stands at `offset` and above. Raises OSError."""

    def seal_targets(self) -> list[SyncTask] | None:
        """As `sync_targets`, with all that a restart needs to begin at the present end; None where the disk is full."""

    def flush_indexes(self) -> bool:
        """Put everything that waits in memory into files; False when the disk refuses."""

    def close(self) -> None:
        """Let go of descriptors."""


class OpenedLog(Protocol):
    """A log as it stands after opening, with what was folded from it on the way."""

    @property
    def segments(self) -> StoredLog:
        """Its batches."""

    @property
    def producers(self) -> ProducerStates:
        """The state of its producers (row P9)."""

    @property
    def epochs(self) -> LeaderEpochs:
        """Which leader epoch began where (row L10)."""


class LogStore(Protocol):
    """Logs by name. One append touches one log: what must hold over several is made whole by records in one of them
    (PREPARE in the transaction log, Begin and End in the metadata log)."""

    @property
    def place(self) -> str:
        """Where the logs are, for people."""

    def names(self) -> list[str]:
        """Every log there is, open or not."""

    def open(self, name: str, config: LogConfig, log_start_offset: int, trusted_offset: int) -> OpenedLog:
        """Open a log, made if need be; what lies below `trusted_offset` was durable and is not checked again.

        Raises OSError, and CorruptLogFile where trusted bytes turn out to be something else.
        """

    def files(self, name: str) -> Store:
        """The small files beside a log: snapshots, leader epochs, identity."""

    def rename(self, name: str, to: str) -> None:
        """Set a log that is not open aside under another name. Raises OSError."""

    def delete(self, name: str, via: str) -> list[SyncTask]:
        """Rename a log that is not open to `via`; what is returned deletes its files when synced. Raises OSError."""
