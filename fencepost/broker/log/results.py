"""The result of an append, and the ports of tasks that wait for a log."""

from collections.abc import Sequence
from typing import Protocol

from fencepost.broker.log.storage.store import Bytes, Store, SyncTask
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class SyncState(Protocol):
    """The part of `StoredLog` that `LogFlusher` uses."""

    @property
    def written_bytes(self) -> int: ...
    @property
    def closed_since_sync(self) -> int: ...


class FlushedLog(Protocol):
    """The part of `PartitionLog` that tickets and `LogFlusher` use; `PartitionLog` documents its members."""

    tp: TopicPartition
    store: Store
    commits_remotely: bool
    disowned: bool
    offline: bool
    writable: bool
    flush_at_bytes: int
    log_start_offset: int
    high_watermark: int

    @property
    def segments(self) -> SyncState: ...
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
    """A task that waits for a change of a partition's bounds."""

    def wake(self) -> None:
        """The high watermark or the LSO moved, or the log was disowned. Must not call back into the log."""


class LogFollower(Protocol):
    """State built from a log's rows. The log reports other writers' rows to it before any ticket settles."""

    def foreign(self, rows: Sequence[Bytes], refused: bool) -> None:
        """Rows of other writers were bound, or a marker of this broker; `refused`: they rejected waiting appends, or
        ended a transaction before one of them, so that the state is not that of the log any more.
        """

    def disowned(self) -> None:
        """The partition was deleted, or another broker leads it."""


class Ticket:
    """The result of one append, and whether it is durable.

    A store that binds offsets late (`StoredLog.late`) may still change the result of an unsettled ticket: another
    writer's rows can shift or reject it. The tickets of one log settle in the order of their `end_offset`.
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
        """The offset after the last record. For a rejected append: the end of the rows that rejected it, 0 at first."""
        self.error = error
        self.message = message
        self.base_offset = base_offset
        """-1 if nothing was appended."""
        self.log_append_time_ms = log_append_time_ms
        """-1 if the producer's timestamps apply (CreateTime)."""
        self.log_start_offset = log.log_start_offset
        self.duplicate = duplicate
        """An earlier request appended the same batch; the offsets are those of that append (row P3)."""
        self.record_errors = record_errors
        """(index in the batch, reason) of rejected records (KIP-467)."""

    @property
    def last_offset(self) -> int:
        return -1 if self.error else self.end_offset - 1

    @property
    def is_settled(self) -> bool:
        """Whether the result is final: durable, or rejected permanently."""
        return self.log.high_watermark >= self.end_offset

    def refuse(self, error: ErrorCode, message: str | None, end_offset: int = 0) -> None:
        """Reject the append. The rejection is final when the log is durable below `end_offset`."""
        self.error = error
        self.message = message
        self.base_offset = self.log_append_time_ms = -1
        self.end_offset = end_offset
