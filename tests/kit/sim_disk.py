"""A disk in memory below `FileStore`: it knows what is durable and what is not, it can fail, and it can be cut off.

It stands behind the port `fencepost.broker.log.storage.disk.Disk`. Reads see what was written, as from a page cache; a
power cut keeps what a sync has made durable and, of the rest, whatever its `Fate` says. Nothing here is random by
itself: the same calls, faults and seeds give the same bytes.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable
from random import Random

from fencepost.broker.log.storage.disk import DirectoryEntry
from fencepost.broker.log.storage.store import Bytes
from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import Fate, Rename, SimDirectory, SimFile, Twins, twin_of

NO_REGIONS = 1 << 62
"""A simulated file has no descriptor that a socket could send from: every read is bytes."""

SPACE_TAKERS = frozenset({"create", "mkdir", "rename", "move"})
"""The calls that a full disk refuses."""


class SimDisk:
    """One disk with one tree of directories, whose root exists from the beginning."""

    def __init__(self, root: SimDirectory | None = None) -> None:
        self.region_min_bytes = NO_REGIONS
        self.root = root or SimDirectory()
        self.counts: Counter[str] = Counter()
        """Calls so far by kind: open, create, pread, pwrite, ftruncate, fdatasync, fsync, size, listing, ..."""
        self.io_count = 0
        """Calls so far; the index of the next one."""
        self.faults: list[Fault] = []
        """What goes wrong, and when; the first that applies to a call is the one."""
        self.room_bytes: int | None = None
        """Bytes that still fit; None for a disk that is never full."""
        self.now_ms = 0
        """What the disk's clock says: files keep it as the time of their last write."""
        self.before_io: Callable[[str, str], None] | None = None
        """Called with the kind and the path before each call: the place to take snapshots of the disk."""
        self._open: dict[int, tuple[SimFile | SimDirectory, str]] = {}
        self._next_fd = 1000

    # What a crash leaves

    def kill(self) -> "SimDisk":
        """The disk as the next process finds it after kill -9: the page cache lives, unsynced changes stay unsynced."""
        return SimDisk(self.root.copy())

    def kill_one(self) -> "SimDisk":
        """As `kill`, of one of several processes on the same disk: what it still calls, it does to a copy."""
        others = SimDisk(self.root)
        twins: Twins = {}
        self.root = self.root.copy(twins)
        self._open = {fd: (twin_of(node, twins), path) for fd, (node, path) in self._open.items()}
        return others

    def power_cut(self, fate: Fate, seed: int = 0) -> "SimDisk":
        """The disk as it is after a power cut: of what was not synced there is left what `fate` picks."""
        return SimDisk(self.root.survivor(fate, Random(seed)))

    def file(self, path: str) -> SimFile:
        """The file at `path`, for tests that flip a bit or look at the bytes. Raises FileNotFoundError."""
        node = self._walk(path)
        assert isinstance(node, SimFile), path
        return node

    def file_names(self, path: str) -> list[str]:
        """The files in a directory, without a call being counted. Raises FileNotFoundError."""
        node = self._walk(path)
        assert isinstance(node, SimDirectory), path
        return sorted(name for name, child in node.entries.items() if isinstance(child, SimFile))

    def flip(self, path: str, position: int, bit: int = 0) -> None:
        """Flip one bit of a file, in the cache and on the platter: what age does to cold data."""
        file = self.file(path)
        file.sync()
        for data in (file.data, file.durable):
            data[position] ^= 1 << bit

    # The port

    def open(self, path: str, flags: int, mode: int) -> int:
        """As `os.open`, for files and (to sync them) directories."""
        parent, name = self._parent(path)
        missing = name and name not in parent.entries and flags & os.O_CREAT
        self._io("create" if missing else "open", path)
        parent, name = self._parent(path)  # the process may have been killed within the call
        node = parent.entries.get(name) if name else parent
        if node is None:
            if not missing:
                raise _error(errno.ENOENT, path)
            node = SimFile()
            parent.change({name: node})
        if flags & os.O_DIRECTORY and isinstance(node, SimFile):
            raise _error(errno.ENOTDIR, path)
        if flags & os.O_TRUNC and isinstance(node, SimFile) and node.data:
            node.truncate(0)
        self._next_fd += 1
        self._open[self._next_fd] = node, path
        return self._next_fd

    def close(self, fd: int) -> None:
        """As `os.close`; never fails, never counts."""
        del self._open[fd]

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """As `os.pread`."""
        self._io("pread", self._open[fd][1])
        file, _ = self._file(fd)
        return bytes(file.data[offset : offset + length])

    def pwrite(self, fd: int, data: Bytes, offset: int) -> int:
        """As `os.pwrite`: on a disk that fills up, or by a fault, it takes a part of the bytes, or none."""
        fault = self._io("pwrite", self._open[fd][1])
        file, path = self._file(fd)
        count = len(data) if fault is None or fault.takes_bytes is None else min(fault.takes_bytes, len(data))
        if self.room_bytes is not None:
            over = max(0, min(count, file.allocated - offset))  # what stands there has its room
            if count > over and not self.room_bytes + over:
                raise _error(errno.ENOSPC, path)
            count = min(count, over + self.room_bytes)
            self.room_bytes -= count - over
        file.write(offset, bytes(data[:count]))
        file.modified_ms = self.now_ms
        return count

    def ftruncate(self, fd: int, length: int) -> None:
        """As `os.ftruncate`."""
        self._io("ftruncate", self._open[fd][1])
        file, _ = self._file(fd)
        file.truncate(length)

    def fdatasync(self, fd: int) -> None:
        """As `os.fdatasync`."""
        self._sync("fdatasync", fd)

    def write_back(self, fd: int, start: int, stop: int) -> None:
        """On the way to the platter, where nothing of it is yet; one that fails has lost what it should write."""
        node, path = self._open[fd]
        try:
            self._io("write_back", path)
        except OSError:
            node.forget_unsynced()
            raise

    def fsync(self, fd: int) -> None:
        """As `os.fsync`. That of a directory makes its names durable; that of a file does not make its name so."""
        self._sync("fsync", fd)

    def size(self, path: str) -> int:
        """As `os.stat(path).st_size`."""
        self._io("size", path)
        node = self._walk(path)
        return len(node.data) if isinstance(node, SimFile) else 0

    def modified_ms(self, path: str) -> int:
        """As `os.stat(path).st_mtime`, in ms of `now_ms`."""
        self._io("size", path)
        node = self._walk(path)
        return node.modified_ms if isinstance(node, SimFile) else 0

    def listing(self, path: str) -> list[DirectoryEntry]:
        """The names in a directory, in no order that a caller should rely on: by name, backwards."""
        self._io("listing", path)
        node = self._walk(path)
        if isinstance(node, SimFile):
            raise _error(errno.ENOTDIR, path)
        return [
            DirectoryEntry(name, False, len(child.data))
            if isinstance(child, SimFile)
            else DirectoryEntry(name, True, 0)
            for name, child in sorted(node.entries.items(), reverse=True)
        ]

    def mkdir(self, path: str, mode: int) -> None:
        """As `os.mkdir`; that the name is taken is noticed before there is no room for it."""
        parent, name = self._parent(path)
        if name in parent.entries or not name:
            raise _error(errno.EEXIST, path)
        self._io("mkdir", path)
        self._parent(path)[0].change({name: SimDirectory()})

    def rename(self, path: str, to: str) -> None:
        """As `os.replace`; one from a directory into another is a "move", and durable when both are synced."""
        self._io("rename" if self._parent(path)[0] is self._parent(to)[0] else "move", path)
        parent, name = self._parent(path)
        other, new_name = self._parent(to)
        node = parent.entries.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        there = other.entries.get(new_name)
        if isinstance(there, SimDirectory) and there.entries:
            raise _error(errno.ENOTEMPTY, to)
        if other is parent:
            parent.change({name: None, new_name: node})
        else:
            rename = Rename()
            rename.change(parent, {name: None})
            rename.change(other, {new_name: node})

    def unlink(self, path: str) -> None:
        """As `os.unlink`."""
        self._io("unlink", path)
        parent, name = self._parent(path)
        if name not in parent.entries:
            raise _error(errno.ENOENT, path)
        parent.change({name: None})

    def rmdir(self, path: str) -> None:
        """As `os.rmdir`."""
        self._io("rmdir", path)
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if not isinstance(node, SimDirectory):
            raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        if node.entries:
            raise _error(errno.ENOTEMPTY, path)
        parent.change({name: None})

    # Inside

    def _io(self, kind: str, path: str) -> Fault | None:
        """Count a call; raise what its fault says, or return the fault that lets it through in part."""
        if self.before_io is not None:
            self.before_io(kind, path)
        index = self.io_count
        self.io_count += 1
        self.counts[kind] += 1
        for fault in self.faults:
            if fault.applies(kind, path, index):
                fault.hits += 1
                if fault.takes_bytes is not None and kind == "pwrite" and fault.hits == 1:
                    return fault
                raise _error(fault.code, path)
        if self.room_bytes == 0 and kind in SPACE_TAKERS:
            raise _error(errno.ENOSPC, path)
        return None

    def _sync(self, kind: str, fd: int) -> None:
        try:
            self._io(kind, self._open[fd][1])
        except OSError:
            self._open[fd][0].forget_unsynced()
            raise
        self._open[fd][0].sync()

    def _file(self, fd: int) -> tuple[SimFile, str]:
        node, path = self._open[fd]
        if isinstance(node, SimDirectory):
            raise _error(errno.EISDIR, path)
        return node, path

    def _parent(self, path: str) -> tuple[SimDirectory, str]:
        head, _, name = path.rpartition("/")
        node = self._walk(head)
        if isinstance(node, SimFile):
            raise _error(errno.ENOTDIR, path)
        return node, name

    def _walk(self, path: str) -> SimFile | SimDirectory:
        node: SimFile | SimDirectory = self.root
        for name in path.split("/"):
            if name:
                found = node.entries.get(name) if isinstance(node, SimDirectory) else None
                if found is None:
                    raise _error(errno.ENOENT, path)
                node = found
        return node


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
