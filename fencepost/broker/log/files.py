"""The store on a file system: a bounded number of descriptors, and writes that leave no half behind."""

import errno
import logging
import os
import resource
import shutil
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from fencepost.broker.log.store import Bytes, Descriptor, FileRegion, Piece, Store, StoredFile, Syncable

REGION_MIN_BYTES = 64 * 1024
"""From this size on sendfile beats a copy through user space."""

_TEMPORARY = ".tmp"

logger = logging.getLogger(__name__)


class DescriptorPool:
    """Bounds the descriptors held open: on a new one, a file not used since the last round gives its own back."""

    def __init__(self, capacity: int | None = None) -> None:
        soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._capacity = capacity if capacity is not None else max(16, min(4096, soft_limit // 2))
        self._holders: OrderedDict[DiskFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def admit(self, file: "DiskFile") -> None:
        """`file` has just opened a descriptor."""
        while len(self._holders) >= self._capacity:
            holder, _ = self._holders.popitem(last=False)
            if holder.recently_used:
                holder.recently_used = False
                self._holders[holder] = None
            else:
                holder.descriptor = None
        self._holders[file] = None

    def forget(self, file: "DiskFile") -> None:
        """`file` has let its descriptor go by itself."""
        self._holders.pop(file, None)


class _FileSync:
    """One fdatasync, with the descriptor it needs."""

    def __init__(self, descriptor: Descriptor, place: str) -> None:
        self._descriptor = descriptor
        self._place = place

    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor.fd)
        except OSError as error:
            raise OSError(error.errno, f"fdatasync: {error.strerror}", self._place) from error


class _DirectorySync:
    """One fsync of a directory, which makes the names in it durable."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def sync(self) -> None:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # deleted since: its own deletion is what has to last, and the parent sees to that
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class DiskFile:
    """A file on disk behind the `StoredFile` port; opened on first use, at most one descriptor at a time."""

    def __init__(self, directory: "FileStore", name: str, pool: DescriptorPool) -> None:
        self._directory = directory
        self._path = directory.path / name
        self._pool = pool
        self._ragged = False
        self.descriptor: Descriptor | None = None
        self.recently_used = False
        try:
            self._size_bytes = self._path.stat(follow_symlinks=False).st_size
            self._exists = True
        except FileNotFoundError:
            self._size_bytes = 0
            self._exists = False

    @property
    def place(self) -> str:
        return str(self._path)

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def create(self) -> None:
        if not self._exists:
            self._open()

    def write(self, position: int, data: Bytes) -> None:
        descriptor = self.descriptor or self._open()
        self.recently_used = True
        try:
            if self._ragged:
                self._cut_ragged_end(descriptor)
            written = os.pwrite(descriptor.fd, data, position)
            if written != len(data):
                self._write_rest(descriptor, position, data, written)
        except OSError as error:
            self._undo(descriptor)
            raise OSError(error.errno, f"write: {error.strerror}", self.place) from error
        self._size_bytes = max(self._size_bytes, position + len(data))

    def _write_rest(self, descriptor: Descriptor, position: int, data: Bytes, written: int) -> None:
        with memoryview(data) as view:
            while written < len(view):
                count = os.pwrite(descriptor.fd, view[written:], position + written)
                if count == 0:
                    raise OSError(errno.EIO, "the file takes no more bytes")
                written += count

    def _undo(self, descriptor: Descriptor) -> None:
        """Take back what a failed write left behind the end; if even that fails, do it before the next write."""
        self._ragged = True
        try:
            self._cut_ragged_end(descriptor)
        except OSError as error:
            logger.error("could not cut %s back to %d bytes: %s", self.place, self._size_bytes, error.strerror)

    def _cut_ragged_end(self, descriptor: Descriptor) -> None:
        os.ftruncate(descriptor.fd, self._size_bytes)
        self._ragged = False

    def read(self, position: int, length: int) -> bytes:
        length = min(length, self._size_bytes - position)
        if length <= 0:
            return b""
        descriptor = self.descriptor or self._open()
        self.recently_used = True
        data = os.pread(descriptor.fd, length, position)
        if len(data) == length:
            return data
        return self._read_rest(descriptor, position, length, data)

    def _read_rest(self, descriptor: Descriptor, position: int, length: int, data: bytes) -> bytes:
        parts = [data]
        have = len(data)
        while have < length:
            part = os.pread(descriptor.fd, length - have, position + have)
            if not part:
                raise OSError(errno.EIO, f"ends at byte {position + have}, should have {self._size_bytes}", self.place)
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    def piece(self, position: int, length: int) -> Piece:
        if length < REGION_MIN_BYTES:
            return self.read(position, length)
        self.recently_used = True
        return FileRegion(self.descriptor or self._open(), position, length)

    def truncate(self, size_bytes: int) -> None:
        if not self._exists:
            return
        descriptor = self.descriptor or self._open()
        os.ftruncate(descriptor.fd, size_bytes)
        self._size_bytes = size_bytes
        self._ragged = False

    def pin(self) -> Syncable | None:
        if not self._exists:
            return None
        return _FileSync(self.descriptor or self._open(), self.place)

    def close(self) -> None:
        self.descriptor = None
        self._pool.forget(self)

    def _open(self) -> Descriptor:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        if not self._exists:
            self._directory.make()
            flags |= os.O_CREAT
        descriptor = Descriptor(os.open(self._path, flags, 0o600))
        if not self._exists:
            self._exists = True
            self._directory.entries_changed = True
        self.descriptor = descriptor
        self._pool.admit(self)
        return descriptor


class FileStore:
    """A directory on disk behind the `Store` port; made, with mode 0700, when its first file is."""

    def __init__(self, path: Path, pool: DescriptorPool | None = None, parent: "FileStore | None" = None) -> None:
        self.path = path
        self.entries_changed = False
        self._pool = DescriptorPool() if pool is None else pool
        self._parent = parent
        self._made = False

    @property
    def place(self) -> str:
        return str(self.path)

    def make(self) -> None:
        """Make the directory if it is not there. Raises OSError."""
        if self._made:
            return
        try:
            self.path.mkdir(mode=0o700, parents=self._parent is None)
        except FileExistsError:
            pass  # made by an earlier run
        else:
            if self._parent is not None:
                self._parent.entries_changed = True
        self._made = True

    def sizes(self) -> Mapping[str, int]:
        try:
            with os.scandir(self.path) as entries:
                return {e.name: e.stat(follow_symlinks=False).st_size for e in entries if e.is_file()}
        except FileNotFoundError:
            return {}

    def children(self) -> list[str]:
        try:
            with os.scandir(self.path) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def child(self, name: str) -> Store:
        return FileStore(self.path / name, self._pool, self)

    def open(self, name: str) -> StoredFile:
        return DiskFile(self, name, self._pool)

    def load(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: Bytes, *, durable: bool = False) -> None:
        self.make()
        temporary = self.path / (name + _TEMPORARY)
        try:
            with open(temporary, "wb", opener=_private) as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(self.path / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        self.entries_changed = True
        if durable:
            for entry in self.pin_entries():
                entry.sync()

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)
        self.entries_changed = True

    def rename(self, name: str, to: str) -> None:
        (self.path / name).replace(self.path / to)
        self.entries_changed = True

    def discard_child(self, name: str, via: str) -> None:
        if (self.path / name).exists():
            if name != via:
                self.rename_child(name, via)
            shutil.rmtree(self.path / via)
            self.entries_changed = True

    def rename_child(self, name: str, to: str) -> None:
        (self.path / name).rename(self.path / to)
        self.entries_changed = True

    def pin_entries(self) -> list[Syncable]:
        pins: list[Syncable] = []
        if self.entries_changed:
            self.entries_changed = False
            pins.append(_DirectorySync(self.path))
        if self._parent is not None:
            pins += self._parent.pin_entries()
        return pins


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
