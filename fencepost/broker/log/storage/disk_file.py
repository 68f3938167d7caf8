"""One file on disk: opened on first use, without partial writes after a failure, with space reserved ahead."""

import errno
import logging
import os
from dataclasses import dataclass
from typing import Protocol

from fencepost.broker.log.storage.descriptor_pool import DescriptorPool
from fencepost.broker.log.storage.disk import Disk
from fencepost.broker.log.storage.staged import PIECE_BYTES, Staged
from fencepost.broker.log.storage.store import (
    END_MARK,
    NEVER_WRITTEN,
    Bytes,
    Descriptor,
    FileRegion,
    FlushFailed,
    Piece,
    Staging,
    SyncTask,
)

logger = logging.getLogger(__name__)

LARGE_BYTES = 4 << 20
"""A sync of more bytes writes them back in small steps first (docs/decisions/0044-writes-in-pieces.md)."""


class _Directory(Protocol):
    """The file's directory (`FileStore`)."""

    disk: Disk
    changes: int
    """Number of created, renamed and deleted names so far."""

    @property
    def place(self) -> str: ...
    def make(self) -> None: ...


@dataclass(slots=True, eq=False)
class _FilePart:
    """A range of a file, and its descriptor."""

    disk: Disk
    descriptor: Descriptor
    place: str
    start: int
    stop: int


class FileSync(_FilePart):
    """One fdatasync, with the range appended since the last one. Raises FlushFailed.

    A failure leaves no trace for the next process, because a process that is killed at that moment could not write one.
    So a start after a crash never trusts the pages of a log's tail (`LogManager`).
    """

    __slots__ = ()

    def sync(self) -> None:
        call = "fdatasync"
        try:
            if self.stop - self.start > LARGE_BYTES:
                call = "sync_file_range"
                self.disk.write_back(self.descriptor.fd, self.start, self.stop)
                call = "fdatasync"
            self.disk.fdatasync(self.descriptor.fd)
        except OSError as error:
            raise FlushFailed(error.errno, f"{call}: {error.strerror}", self.place) from error


class FileWriteback(_FilePart):
    """Writes a range of a file to the disk, so that the kernel holds fewer dirty pages. Raises FlushFailed.

    It makes nothing durable. On a system without that call the next flush writes the range.
    """

    __slots__ = ()

    def sync(self) -> None:
        try:
            self.disk.write_back(self.descriptor.fd, self.start, self.stop)
        except OSError as error:
            raise FlushFailed(error.errno, f"sync_file_range: {error.strerror}", self.place) from error


class DiskFile:
    """A file on disk behind the `StoredFile` port; opened on first use, at most one descriptor at a time."""

    def __init__(self, directory: _Directory, name: str, pool: DescriptorPool) -> None:
        self._directory = directory
        self._disk = directory.disk
        self._path = f"{directory.place}/{name}"
        self._pool = pool
        self._ragged = False
        self._reserved_to = 0
        self._staged: Staged | None = None
        self.descriptor: Descriptor | None = None
        self.recently_used = False
        try:
            self.size_bytes = self._disk.size(self._path)
            self._exists = True
        except FileNotFoundError:
            self.size_bytes = 0
            self._exists = False
        self._pinned_bytes = self.size_bytes

    @property
    def place(self) -> str:
        return self._path

    def modified_ms(self) -> int:
        return self._disk.modified_ms(self._path) if self._exists else NEVER_WRITTEN

    def is_deleted(self) -> bool:
        try:
            self._disk.size(self._path)
        except FileNotFoundError:
            return self._exists
        return False

    def create(self) -> None:
        if not self._exists:
            self._open()

    def write(self, position: int, data: Bytes) -> None:
        descriptor = self.descriptor or self._open()
        self.recently_used = True
        length = len(data)
        try:
            if self._staged is not None and self._was_staged(position, data):
                self.size_bytes = position + length
                return
            if self._ragged:
                self._cut_ragged_end(descriptor)
            if self._reserved_to:
                data = self._with_mark(position, data)
            written = self._disk.pwrite(descriptor.fd, data, position) if len(data) <= PIECE_BYTES else 0
            if written != len(data):
                self._write_rest(descriptor, position, data, written)
        except OSError as error:
            self._undo(descriptor)
            raise OSError(error.errno, f"write: {error.strerror}", self.place) from error
        self.size_bytes = max(self.size_bytes, position + length)
        if position < self._pinned_bytes:
            self._pinned_bytes = position

    def _with_mark(self, position: int, data: Bytes) -> Bytes:
        """The data of an append into reserved space, followed by the mark that the batches end there."""
        fits = position + len(data) + len(END_MARK) <= self._reserved_to
        return b"".join((data, END_MARK)) if fits and position == self.size_bytes else data

    def _write_rest(self, descriptor: Descriptor, position: int, data: Bytes, written: int) -> None:
        with memoryview(data) as view:
            while written < len(view):
                count = self._disk.pwrite(descriptor.fd, view[written : written + PIECE_BYTES], position + written)
                if count == 0:
                    raise OSError(errno.EIO, "the file system accepted no more bytes")
                written += count

    def _undo(self, descriptor: Descriptor) -> None:
        """Truncate what a failed write left after the end; if that fails, the next write does it first."""
        self._ragged = True
        try:
            self._cut_ragged_end(descriptor)
        except OSError as error:
            logger.error("cannot truncate %s to %d bytes: %s", self.place, self.size_bytes, error.strerror)

    def _cut_ragged_end(self, descriptor: Descriptor) -> None:
        self._disk.ftruncate(descriptor.fd, self.size_bytes)
        self._ragged = False
        self._reserved_to = 0

    def stage(self, head: Bytes, data: Bytes) -> Staged | None:
        self._leave_staged()
        if self._ragged or not self._exists:
            return None
        descriptor, end = self.descriptor or self._open(), self.size_bytes + len(data)
        mark = END_MARK if end + len(END_MARK) <= self._reserved_to else b""
        self._staged = Staged(self._disk, descriptor, self.size_bytes, head, data, mark)
        return self._staged

    def unstage(self, staged: Staging) -> None:
        if self._staged is staged:
            self._leave_staged()
            if self.descriptor is not None:
                self._undo(self.descriptor)

    def _leave_staged(self) -> None:
        """Withdraw the staged batch: its bytes after the end must be truncated before the next write."""
        if self._staged is not None:
            self._staged.withdraw()
            self._staged = None
            self._ragged = True

    def _was_staged(self, position: int, data: Bytes) -> bool:
        """Whether a thread has written all of `data` at `position`; otherwise the staged batch is withdrawn."""
        assert self._staged is not None
        if not self._staged.is_whole(position, data):
            self._leave_staged()
            return False
        self._staged = None
        return True

    def reserve(self, size_bytes: int) -> None:
        if self._ragged or not self._exists or self._reserved_to - self.size_bytes > size_bytes // 8:
            return
        if self._staged is not None:
            return  # a thread is writing there
        descriptor = self.descriptor or self._open()
        reserved_to = self.size_bytes + size_bytes
        try:
            self._disk.ftruncate(descriptor.fd, reserved_to)
            self._disk.pwrite(descriptor.fd, END_MARK, self.size_bytes)
        except OSError as error:
            logger.debug("cannot reserve space in %s: %s", self.place, error.strerror)
            self._undo(descriptor)
        else:
            self._reserved_to = reserved_to

    def trim(self) -> None:
        self._leave_staged()
        if self._ragged or self._reserved_to > self.size_bytes:
            self._cut_ragged_end(self.descriptor or self._open())

    def read(self, position: int, length: int) -> bytes:
        length = min(length, self.size_bytes - position)
        if length <= 0:
            return b""
        descriptor = self.descriptor or self._open()
        self.recently_used = True
        data = self._disk.pread(descriptor.fd, length, position)
        if len(data) == length:
            return data
        return self._read_rest(descriptor, position, length, data)

    def _read_rest(self, descriptor: Descriptor, position: int, length: int, data: bytes) -> bytes:
        parts = [data]
        have = len(data)
        while have < length:
            part = self._disk.pread(descriptor.fd, length - have, position + have)
            if not part:
                raise OSError(errno.EIO, f"ends at byte {position + have}, should have {self.size_bytes}", self.place)
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    def piece(self, position: int, length: int) -> Piece:
        if length < self._disk.region_min_bytes:
            return self.read(position, length)
        self.recently_used = True
        return FileRegion(self.descriptor or self._open(), position, length)

    def truncate(self, size_bytes: int) -> None:
        if not self._exists:
            return
        self._leave_staged()
        descriptor = self.descriptor or self._open()
        self._disk.ftruncate(descriptor.fd, size_bytes)
        self.size_bytes = size_bytes
        self._pinned_bytes = min(self._pinned_bytes, size_bytes)
        self._ragged = False
        self._reserved_to = 0

    def sync_target(self) -> SyncTask | None:
        if not self._exists:
            return None
        descriptor = self.descriptor or self._open()
        start, self._pinned_bytes = self._pinned_bytes, self.size_bytes
        return FileSync(self._disk, descriptor, self._path, start, self.size_bytes)

    def writeback(self, max_bytes: int) -> tuple[int, SyncTask | None]:
        start, stop = self._pinned_bytes, min(self.size_bytes, self._pinned_bytes + max_bytes)
        if stop <= start:
            return 0, None
        descriptor, self._pinned_bytes = self.descriptor or self._open(), stop
        return stop - start, FileWriteback(self._disk, descriptor, self.place, start, stop)

    def follow(self, name: str) -> None:
        self._path = f"{self._directory.place}/{name}"

    def close(self) -> None:
        self.descriptor = None
        self._pool.forget(self)

    def _open(self) -> Descriptor:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        if not self._exists:
            self._directory.make()
            flags |= os.O_CREAT
        descriptor = Descriptor(self._disk.open(self._path, flags, 0o600), self._disk.close)
        if not self._exists:
            self._exists = True
            self._directory.changes += 1
        self.descriptor = descriptor
        self._pool.admit(self)
        return descriptor
