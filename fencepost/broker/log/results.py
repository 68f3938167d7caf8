"""What a log answers to an append, and who may wait for it."""

from collections.abc import Sequence
from typing import Protocol

from fencepost.broker.log.log_store import StoredLog
from fencepost.broker.log.storage.store import Bytes, Store, SyncTask
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class FlushedLog(Protocol):
    """What tickets and `LogFlusher` know of a log: `PartitionLog`, where all of this is explained."""

    tp: TopicPartition
    store: Store
    segments: StoredLog
    binds_late: bool
    disowned: bool
    offline: bool
    flush_at_bytes: int
    log_start_offset: int
    high_watermark: int

    @property
    def writable(self) -> bool: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def unflushed_bytes(self) -> int: ...

    def begin_sync(self, reserve: bool = False) -> tuple[int, list[SyncTask]]: ...

    def finish_sync(self, end_offset: int) -> None: ...

    def begin_writeback(self, max_bytes: int) -> tuple[int, list[SyncTask]]: ...

    def finish_writeback(self, size_bytes: int) -> None: ...

    def take_offline(self, why: OSError) -> None: ...


class Watcher(Protocol):
    """Somebody who waits for a partition to move."""

    def wake(self) -> None:
        """The high watermark or the LSO moved, or the partition was deleted. Must not call back into the log."""


class LogFollower(Protocol):
    """What keeps state by a log's rows, and must learn of other writers' rows before any ticket settles."""

    def foreign(self, rows: Sequence[Bytes], refused: bool) -> None:
        """Rows of other writers came; `refused`: appends of ours that waited were refused because of them."""

    def disowned(self) -> None:
        """The partition is not ours any more."""


class Ticket:
    """One append: what the log answered, and when that is durable.

    A store that binds offsets late (`StoredLog.late`) may still change the answer of an unsettled ticket: another
    writer's rows can move it, or refuse it. The tickets of one log settle in the order of their `end_offset`.
    """

    __slots__ = (
        "base_offset",
        "duplicate",
        "end_offset",
        "error",
        "log",
        "log_append_time_ms",
        "log_start_offset",
        "message",
        "record_errors",
    )

    def __init__(
        self,
        log: FlushedLog,
        end_offset: int,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        *,
        error: ErrorCode = ErrorCode.NONE,
        message: str | None = None,
        duplicate: bool = False,
        record_errors: tuple[tuple[int, str], ...] = (),
    ) -> None:
        self.log = log
        self.end_offset = end_offset
        """The offset after the last record; of a refused append where what it was refused for ends, 0 at first."""
        self.error = error
        self.message = message
        self.base_offset = base_offset
        """-1 where nothing was appended."""
        self.log_append_time_ms = log_append_time_ms
        """-1 where the producer's timestamps hold (CreateTime)."""
        self.log_start_offset = log.log_start_offset
        self.duplicate = duplicate
        """The batch is in the log since an earlier request; the offsets are those of then (row P3)."""
        self.record_errors = record_errors
        """(index in the batch, reason) of records that were refused (KIP-467)."""

    @property
    def last_offset(self) -> int:
        """The offset of the last record; -1 where nothing was appended."""
        return -1 if self.error else self.end_offset - 1

    @property
    def is_settled(self) -> bool:
        """Whether the answer is final: durable, or refused for good."""
        return self.log.high_watermark >= self.end_offset

    def refuse(self, error: ErrorCode, message: str | None, end_offset: int = 0) -> None:
        """Nothing of the append exists. The refusal is final when the log is durable below `end_offset`."""
        self.error = error
        self.message = message
        self.base_offset = self.log_append_time_ms = -1
        self.end_offset = end_offset
