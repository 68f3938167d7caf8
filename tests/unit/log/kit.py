"""Logs over a store in memory, batches to put into them, and crashes at will."""

import errno
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producer_state import AppendOrigin
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.memory import MemoryFile, MemoryStore
from fencepost.broker.log.storage.store import Bytes, FileRegion, Piece
from fencepost.protocol.batch_header import BatchHeader, iter_headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from tests.kit.late_log_store import LateLogStore

TP = TopicPartition("events", 0)
TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
COMMITTED = IsolationLevel.READ_COMMITTED
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
DEFAULTS = LogConfig()
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=100)


def batch(
    count: int = 1,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    *,
    transactional: bool = False,
    timestamp_ms: int = NOW_MS,
    value: bytes = b"value",
) -> bytearray:
    """A client's batch of `count` equal records."""
    return build_batch(
        [(timestamp_ms, b"key", value, ())] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def send(log: PartitionLog, data: Bytes, *, version: int = 0, origin: AppendOrigin = AppendOrigin.CLIENT) -> Ticket:
    """Append at the usual time."""
    return log.append(data, origin, NOW_MS, transaction_version=version)


def transact(log: PartitionLog, producer_id: int, epoch: int, sequence: int, count: int = 1) -> Ticket:
    """Append a transactional batch, which must go in."""
    info = send(log, batch(count, producer_id, epoch, sequence, transactional=True))
    assert not info.error, info
    return info


def end(log: PartitionLog, producer_id: int, epoch: int, *, commit: bool, version: int = 1) -> Ticket:
    """Append a marker, which must go in."""
    info = log.append_marker(producer_id, epoch, commit, 0, version, NOW_MS)
    assert not info.error, info
    return info


def settle(log: PartitionLog) -> None:
    """What a round of group commit does: make everything durable, raise the high watermark."""
    end_offset, sync_targets = log.begin_sync()
    for target in sync_targets:
        target.sync()
    log.finish_sync(end_offset)


def over(store: MemoryStore, config: LogConfig = DEFAULTS, durability: str = "os") -> PartitionLog:
    """The one partition over `store`; in `os` the high watermark follows the end, in `fsync` `settle` moves it."""
    return directory_over(store, durability).create(TP, TOPIC_ID, config)


def late_log(store: LateLogStore, config: LogConfig = DEFAULTS) -> PartitionLog:
    """The one partition over a store that binds offsets late; `settle` commits what waits."""
    return PartitionLog(TP, TOPIC_ID, config, store.files(str(TP)), store.open(str(TP), config, 0, 0))


def directory_over(store: MemoryStore, durability: str = "os") -> LogManager:
    """A directory that is closed and opened again like one on disk."""
    return LogManager.over(store, "os" if durability == "os" else "fsync")


def crashed(store: MemoryStore) -> MemoryStore:
    """What a kill -9 at this moment leaves: a copy that nothing alive refers to."""
    copy = MemoryStore(store.place)
    for name, file in store.files.items():
        copy.files[name] = fresh = MemoryFile(file.place)
        fresh.data, fresh.exists = bytearray(file.data), file.exists
    for name in store.children():
        copy._children[name] = crashed(store.child(name))
    return copy


def log_file(store: MemoryStore, suffix: str = ".log", number: int = -1) -> MemoryFile:
    """The partition's file with this suffix; by default that of the last segment."""
    files = store.child(str(TP)).files
    return files[sorted(name for name in files if name.endswith(suffix))[number]]


def file_names(store: MemoryStore) -> list[str]:
    """The names in the partition's directory that hold bytes."""
    return sorted(name for name, size in store.child(str(TP)).sizes().items() if size)


def joined(parts: Iterable[Piece]) -> bytes:
    """The bytes behind pieces of a read."""
    return b"".join(
        os.pread(part.fd, part.length, part.offset) if isinstance(part, FileRegion) else part for part in parts
    )


def headers(log: PartitionLog, isolation: IsolationLevel = UNCOMMITTED, max_bytes: int = 1 << 20) -> list[BatchHeader]:
    """Every batch that a reader of `isolation` gets, read from the log's start in pieces of `max_bytes`."""
    found: list[BatchHeader] = []
    offset = log.log_start_offset
    while True:
        result = read_batches(log, offset, max_bytes, isolation)
        assert not result.error, result
        if not result.size_bytes:
            return found
        data = joined(result.parts)
        assert len(data) == result.size_bytes
        got = [header for _, header in iter_headers(data)]
        assert sum(header.size_bytes for header in got) == len(data), "reads give whole batches only"
        found += got
        offset = got[-1].next_offset


class FullDisk(MemoryStore):
    """A store that takes `room` more bytes and then says ENOSPC, as to all `refused_suffix`; EIO while `broken`."""

    def __init__(self, place: str = "full:", top: "FullDisk | None" = None) -> None:
        super().__init__(place)
        self.top = top or self
        self.room = 1 << 40
        self.broken = False
        self.refused_suffix = "nothing"

    def new_child(self, name: str) -> MemoryStore:
        return FullDisk(f"{self.place}/{name}", self.top)

    def new_file(self, name: str) -> MemoryFile:
        return _FullFile(f"{self.place}/{name}", self.top)


class _FullFile(MemoryFile):
    def __init__(self, place: str, disk: FullDisk) -> None:
        super().__init__(place)
        self._disk = disk

    def write(self, position: int, data: Bytes) -> None:
        if self._disk.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.place)
        if len(data) > self._disk.room or self.place.endswith(self._disk.refused_suffix):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.place)
        self._disk.room -= len(data)
        super().write(position, data)


def settle_small(log):
    """A round of group commit in `fsync`: more small flushes are to be expected."""
    end_offset, sync_targets = log.begin_sync(reserve=True)
    for target in sync_targets:
        target.sync()
    log.finish_sync(end_offset)


def headers_from_disk(path: Path):
    """What a reader finds that knows nothing of what is in memory."""
    return headers(LogManager.over(FileStore(path), "os").create(TP, TOPIC_ID, DEFAULTS))


@asynccontextmanager
async def running(commit: LogFlusher) -> AsyncIterator[trio.Nursery]:
    """The flusher at work, until the block ends."""
    async with trio.open_nursery() as nursery:
        await nursery.start(commit.run)
        yield nursery
        nursery.cancel_scope.cancel()


def unverified(log: PartitionLog) -> ErrorCode:
    """The error of a batch whose verification a marker took away. In a cluster the marker may be older than the
    verification, so the client sends the batch again.
    """
    return ErrorCode.INVALID_TXN_STATE if log.segments.late is None else ErrorCode.NOT_ENOUGH_REPLICAS
