"""The few system calls below the files of a log; a simulated disk can replace them."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn, Protocol

from fencepost.broker.log.durability.writeback import Writeback
from fencepost.broker.log.storage.store import Bytes


class DirectoryEntry(NamedTuple):
    """One name in a directory."""

    name: str
    is_directory: bool
    size_bytes: int
    """Of a regular file; 0 for a directory."""
    is_link: bool = False
    """Whether it is a link to the directory or file."""


class Disk(Protocol):
    """The system calls that `FileStore` needs, with the names and the meaning of `os`.

    Every call may raise OSError. `pwrite` and `pread` may process fewer bytes than requested, as in POSIX. Nothing is
    durable before `fdatasync` (a file's bytes) or `fsync` (of a directory: its names) has returned.
    """

    @property
    def region_min_bytes(self) -> int:
        """From this size on a read returns a region of the file, for sendfile."""

    def open(self, path: str, flags: int, mode: int, /) -> int: ...
    def close(self, fd: int, /) -> None: ...

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        """At most `length` bytes from `offset` on; no bytes at the end of the file."""

    def pwrite(self, fd: int, data: Bytes, offset: int, /) -> int:
        """Write at `offset`. Returns the number of written bytes, which may be smaller."""

    def ftruncate(self, fd: int, length: int, /) -> None: ...

    def fdatasync(self, fd: int, /) -> None:
        """Make the bytes and the size of a file durable."""

    def write_back(self, fd: int, start: int, stop: int, /) -> None:
        """Write the dirty bytes from `start` to `stop` to the disk in small steps; that makes nothing durable."""

    def fsync(self, fd: int, /) -> None: ...

    def size(self, path: str, /) -> int:
        """Bytes in the file at `path`, links not followed. Raises FileNotFoundError."""

    def modified_ms(self, path: str, /) -> int:
        """Time of the last write of the file at `path` in epoch ms, links not followed. Raises FileNotFoundError."""

    def listing(self, path: str, /) -> list[DirectoryEntry]:
        """The regular files and directories in a directory, and links to them. Raises FileNotFoundError."""

    def mkdir(self, path: str, mode: int, /) -> None:
        """Create one directory. Raises FileExistsError and FileNotFoundError."""

    def rename(self, path: str, to: str, /) -> None:
        """Rename a file or directory atomically; replaces a file with that name."""

    def unlink(self, path: str, /) -> None:
        """Delete a file. Raises FileNotFoundError."""

    def rmdir(self, path: str, /) -> None:
        """Delete an empty directory."""


def _not_here(*_: object) -> NoReturn:
    """Stands in for a function that Windows lacks, so that a broker in memory can be imported there."""
    raise OSError(errno.ENOSYS, "data in files needs a POSIX system")


class SystemDisk:
    """The operating system: the functions of `os` are bound directly, so that appends pay for no wrapper."""

    def __init__(self) -> None:
        self.region_min_bytes = 64 * 1024
        """From this size on sendfile is faster than a copy through user space."""
        self.open: Callable[[str, int, int], int] = os.open
        self.close = os.close
        self.pread: Callable[[int, int, int], bytes] = getattr(os, "pread", _not_here)
        self.pwrite: Callable[[int, Bytes, int], int] = getattr(os, "pwrite", _not_here)
        self.ftruncate: Callable[[int, int], None] = os.ftruncate
        self.fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # macOS has none
        self.write_back: Callable[[int, int, int], None] = Writeback()
        self.fsync = os.fsync
        self.mkdir: Callable[[str, int], None] = os.mkdir
        self.rename: Callable[[str, str], None] = os.replace
        self.unlink: Callable[[str], None] = os.unlink
        self.rmdir: Callable[[str], None] = os.rmdir

    def size(self, path: str) -> int:
        return os.stat(path, follow_symlinks=False).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path, follow_symlinks=False).st_mtime_ns // 1_000_000

    def listing(self, path: str) -> list[DirectoryEntry]:
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                is_link = entry.is_symlink()
                if entry.is_dir():
                    found.append(DirectoryEntry(entry.name, True, 0, is_link))
                elif entry.is_file():
                    with suppress(FileNotFoundError):  # a thread or another process has deleted it meanwhile
                        size = entry.stat(follow_symlinks=False).st_size
                        found.append(DirectoryEntry(entry.name, False, size, is_link))
        return found


SYSTEM_DISK = SystemDisk()


def remove_tree(disk: Disk, path: str) -> None:
    """Delete a directory with its content; files deleted meanwhile are not an error. Raises OSError.

    Of a link to a directory it deletes the files there and the link. It follows no links in the directory.
    """
    for entry in disk.listing(path):
        below = f"{path}/{entry.name}"
        if entry.is_directory and not entry.is_link:
            remove_tree(disk, below)
            continue
        try:
            disk.unlink(below)
        except FileNotFoundError:
            continue
    try:
        disk.rmdir(path)
    except NotADirectoryError:
        disk.unlink(path)
