"""The handful of system calls below the files of a log, so that a simulated disk can stand in for the kernel."""

import os
from collections.abc import Callable
from typing import NamedTuple, Protocol

from fencepost.broker.log.durability.writeback import Writeback
from fencepost.broker.log.storage.store import Bytes


class DirectoryEntry(NamedTuple):
    """One name in a directory."""

    name: str
    is_directory: bool
    size_bytes: int
    """Of a regular file; 0 for a directory."""


class Disk(Protocol):
    """What `FileStore` asks of the operating system, under the names of `os` and with its meaning.

    Every call may raise OSError. `pwrite` and `pread` may do less than was asked, as in POSIX. Nothing is durable
    before `fdatasync` (a file's bytes) or `fsync` (of a directory: its names) has returned.
    """

    @property
    def region_min_bytes(self) -> int:
        """From this size on a read is handed out as a region of the file, which a socket can send by itself."""

    def open(self, path: str, flags: int, mode: int, /) -> int:
        """A descriptor."""

    def close(self, fd: int, /) -> None:
        """Give a descriptor back."""

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        """At most `length` bytes from `offset` on; none at the end of the file."""

    def pwrite(self, fd: int, data: Bytes, offset: int, /) -> int:
        """Write at `offset`; the number of bytes that went in, which may be fewer."""

    def ftruncate(self, fd: int, length: int, /) -> None:
        """Set the size of a file."""

    def fdatasync(self, fd: int, /) -> None:
        """Make the bytes and the size of a file durable."""

    def write_back(self, fd: int, start: int, stop: int, /) -> None:
        """Have the bytes of a file from `start` to `stop` written a little at a time; nothing is durable by that."""

    def fsync(self, fd: int, /) -> None:
        """Make a file or a directory durable."""

    def size(self, path: str, /) -> int:
        """Bytes in the file at `path`, links not followed. Raises FileNotFoundError."""

    def modified_ms(self, path: str, /) -> int:
        """When the file at `path` was last written, links not followed. Raises FileNotFoundError."""

    def listing(self, path: str, /) -> list[DirectoryEntry]:
        """The regular files and directories in a directory. Raises FileNotFoundError."""

    def mkdir(self, path: str, mode: int, /) -> None:
        """Make one directory. Raises FileExistsError and FileNotFoundError."""

    def rename(self, path: str, to: str, /) -> None:
        """Give a file or directory another name, at once and in place of a file that has it."""

    def unlink(self, path: str, /) -> None:
        """Take a file's name away. Raises FileNotFoundError."""

    def rmdir(self, path: str, /) -> None:
        """Take an empty directory away."""


class SystemDisk:
    """The operating system itself: the calls are those of `os`, bound, so that the hot path pays for no wrapper."""

    def __init__(self) -> None:
        self.region_min_bytes = 64 * 1024
        """From here on sendfile beats a copy through user space."""
        self.open: Callable[[str, int, int], int] = os.open
        self.close = os.close
        self.pread: Callable[[int, int, int], bytes] = os.pread
        self.pwrite: Callable[[int, Bytes, int], int] = os.pwrite
        self.ftruncate: Callable[[int, int], None] = os.ftruncate
        self.fdatasync = os.fdatasync
        self.write_back: Callable[[int, int, int], None] = Writeback()
        self.fsync = os.fsync
        self.mkdir: Callable[[str, int], None] = os.mkdir
        self.rename: Callable[[str, str], None] = os.replace
        self.unlink: Callable[[str], None] = os.unlink
        self.rmdir: Callable[[str], None] = os.rmdir

    def size(self, path: str) -> int:
        """As the port says."""
        return os.stat(path, follow_symlinks=False).st_size

    def modified_ms(self, path: str) -> int:
        """As the port says."""
        return os.stat(path, follow_symlinks=False).st_mtime_ns // 1_000_000

    def listing(self, path: str) -> list[DirectoryEntry]:
        """As the port says; one `lstat` per file."""
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    found.append(DirectoryEntry(entry.name, True, 0))
                elif entry.is_file():
                    found.append(DirectoryEntry(entry.name, False, entry.stat(follow_symlinks=False).st_size))
        return found


SYSTEM_DISK = SystemDisk()
"""The disk of this machine."""


def remove_tree(disk: Disk, path: str) -> None:
    """Delete a directory with all that is in it; what is gone meanwhile is no error. Raises OSError."""
    for entry in disk.listing(path):
        below = f"{path}/{entry.name}"
        if entry.is_directory:
            remove_tree(disk, below)
            continue
        try:
            disk.unlink(below)
        except FileNotFoundError:
            continue
    disk.rmdir(path)
