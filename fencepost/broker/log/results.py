"""What a log answers, and who may wait for it."""

from typing import NamedTuple, Protocol

from fencepost.broker.log.storage.store import Piece
from fencepost.protocol.errors import ErrorCode


class Watcher(Protocol):
    """Somebody who waits for a partition to move."""

    def wake(self) -> None:
        """The high watermark or the LSO moved, or the partition was deleted. Must not call back into the log."""
        ...


class AppendInfo(NamedTuple):
    """What became of an append."""

    error: ErrorCode
    message: str | None
    base_offset: int
    """-1 where nothing was appended."""
    last_offset: int
    log_append_time_ms: int
    """-1 where the producer's timestamps hold (CreateTime)."""
    log_start_offset: int
    duplicate: bool = False
    """The batch is in the log since an earlier request; the offsets are those of then (row P3)."""
    record_errors: tuple[tuple[int, str], ...] = ()
    """(index in the batch, reason) of records that were refused (KIP-467)."""


class ReadResult(NamedTuple):
    """What a fetch of one partition gets."""

    error: ErrorCode
    parts: list[Piece]
    """Whole batches, in order; large runs as file regions."""
    size_bytes: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    """(producer id, first offset) of the aborted transactions that overlap the batches; None for read_uncommitted."""


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int
