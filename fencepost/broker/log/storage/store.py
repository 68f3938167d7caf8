"""The port below the log: named byte files in directories. The rules are above it, the bytes below it."""

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

Bytes = bytes | bytearray | memoryview
NEVER_WRITTEN = -1
"""The time of the last write of a file that was never written, or for which it is unknown."""


_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class CorruptLogFile(Exception):
    """A file of a log is damaged; names the file, the byte position and the reason."""

    def __init__(self, place: str, position: int, why: str) -> None:
        super().__init__(f"{place} at byte {position}: {why}")
        self.place = place
        self.position = position
        self.why = why


class FlushFailed(OSError):
    """An fsync failed. The bytes since the last successful one may be lost, and a retry proves nothing.

    The kernel marks pages clean that it could not write, so the next flush succeeds without them. The caller must not
    use the file again: see `LogFlusher`.
    """

    def is_in(self, place: str) -> bool:
        """Whether the file is that place, such as the directory of a log, or in it."""
        path = str(self.filename)
        return path == place or path.startswith(f"{place}/")


SHORTAGE_PAUSE_SECONDS = 0.5
"""After this time the system may have what it lacked."""


def is_shortage(error: Exception) -> bool:
    """Whether the system lacked descriptors or memory: nothing was tried, and the same may succeed later."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES and not isinstance(error, FlushFailed)


class Descriptor:
    """A file descriptor that closes when its last reference is gone.

    A file region that waits for a socket keeps its descriptor open, even if the file is closed or deleted meanwhile. So
    a descriptor number is never reused while a reader needs it.
    """

    __slots__ = ("__weakref__", "_close", "fd")

    def __init__(self, fd: int, close: Callable[[int], None] = os.close) -> None:
        self.fd = fd
        self._close = close

    def __del__(self) -> None:
        self._close(self.fd)


class FileRegion:
    """`length` bytes of an open file from `offset` on, for sendfile; valid as long as the object exists."""

    __slots__ = ("_descriptor", "length", "offset")

    def __init__(self, descriptor: Descriptor, offset: int, length: int) -> None:
        self._descriptor = descriptor
        self.offset = offset
        self.length = length

    @property
    def fd(self) -> int:
        """The descriptor to send from; do not close it."""
        return self._descriptor.fd

    def part(self, start: int, stop: int) -> "FileRegion":
        """The bytes from `start` to `stop`, counted from the region's begin."""
        return FileRegion(self._descriptor, self.offset + start, stop - start)

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileRegion(fd={self.fd}, offset={self.offset}, length={self.length})"


Piece = bytes | FileRegion
"""The result of a read: small pieces as bytes, large ones as regions of a file."""


class SyncTask(Protocol):
    """A task for any thread that makes bytes durable, or does other slow work on files."""

    def sync(self) -> None:
        """Do it, and return when it is durable. Raises OSError: then the bytes since the last success may be lost."""


class FileJob:
    """A deferred call of a store; it must hold all of its arguments, because the store may change before the call."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def sync(self) -> None:
        """Do the work. Raises OSError."""
        self._work()


class Deletion(FileJob):
    """Frees the space of files that are renamed already, so it can be delayed, or left to the next start."""


class Staging(SyncTask, Protocol):
    """The task of `StoredFile.stage`: its `sync` returns when the bytes are written, and never raises."""


END_MARK = bytes(8) + (1 << 30).to_bytes(4, "big") + bytes(5)
"""Follows the last batch in reserved space: the header of a batch larger than the file, where Kafka's readers end a
log. They would report zeros as damage."""


class StoredFile(Protocol):
    """One file. Its first write or `create` creates it."""

    @property
    def place(self) -> str:
        """The file's name for messages."""

    @property
    def size_bytes(self) -> int:
        """Written bytes, without reserved space."""

    def modified_ms(self) -> int:
        """Time of the last write in epoch ms by the system's clock; NEVER_WRITTEN if unknown. Raises OSError."""

    def is_deleted(self) -> bool:
        """Whether the file was made and has no name any more. Raises OSError."""

    def create(self) -> None:
        """Create the file, empty, if it does not exist. Raises OSError."""

    def write(self, position: int, data: Bytes) -> None:
        """Write all of `data` at `position`. Raises OSError; then the file is unchanged."""

    def stage(self, head: Bytes, data: Bytes) -> "Staging | None":
        """A task that writes `data` after the file's end ahead of its append, with `head` as its first bytes.

        When the same object `data` is then passed to `write` at the file's end, nothing is left to write. Any other
        write, and the next `stage`, withdraws the staged bytes. None if staging has no use. Raises OSError.
        """

    def unstage(self, staged: "Staging") -> None:
        """Withdraw the staged bytes, unless they were appended or withdrawn already."""

    def reserve(self, size_bytes: int) -> None:
        """Extend the file by END_MARK and about `size_bytes` zeros, which `size_bytes` does not count.

        Writes into the reserved space leave the file's size on disk unchanged, which makes a flush cheaper. `trim` and
        `truncate` remove it; after a crash it may still exist. Does nothing if the disk fails.
        """

    def trim(self) -> None:
        """Remove the reserved space. Raises OSError."""

    def read(self, position: int, length: int) -> bytes:
        """At most `length` bytes from `position` on; fewer at the end of the file. Raises OSError."""

    def piece(self, position: int, length: int) -> Piece:
        """`length` existing bytes, in the form that is cheapest to send. Raises OSError."""

    def truncate(self, size_bytes: int) -> None:
        """Drop everything from `size_bytes` on. Raises OSError."""

    def sync_target(self) -> SyncTask | None:
        """The task that makes all writes so far durable; None if the file does not exist."""

    def writeback(self, max_bytes: int) -> "tuple[int, SyncTask | None]":
        """At most `max_bytes` of the oldest unflushed bytes: their number, and a task that writes them to the disk.

        The task makes nothing durable. Raises OSError.
        """

    def follow(self, name: str) -> None:
        """Use the file's new name in its directory from now on."""

    def close(self) -> None:
        """Close the descriptor; the next use opens the file again."""


class Store(Protocol):
    """One directory of files, and the directories in it. The first file creates its directory."""

    @property
    def place(self) -> str:
        """The directory's name for messages."""

    def sizes(self) -> Mapping[str, int]:
        """The files that exist, with their sizes in bytes."""

    def children(self) -> list[str]:
        """The directories in this one."""

    def child(self, name: str) -> "Store":
        """The directory `name` in this one, whether or not it exists yet."""

    def open(self, name: str) -> StoredFile:
        """The file `name`, whether or not it exists yet."""

    def load(self, name: str) -> bytes | None:
        """The content of a small file, or None if it does not exist. Raises OSError."""

    def replace(self, name: str, data: Bytes, *, durable: bool = False, whole: bool = False) -> None:
        """Replace a small file; on return it is durable if `durable`. Raises OSError; then the old file remains.

        After a power cut before the directory is synced, the file is either the old or the new one if `whole` or
        `durable`. Otherwise it may be torn, which its reader must detect.
        """

    def replacement(self, name: str, data: Bytes) -> SyncTask:
        """A task that replaces a small file durably when synced, from any thread."""

    def removals(self, names: Iterable[str]) -> list[SyncTask]:
        """Remove the names of these files, in this order, if they exist. Returns tasks that delete them when synced.

        Any thread may sync them at any time or never: freeing a file's blocks can be slow, and the next start deletes
        the rest. Raises OSError.
        """

    def remove(self, name: str) -> None:
        """Delete a file; a missing one is not an error. Raises OSError."""

    def rename(self, name: str, to: str) -> None:
        """Rename a file; replaces a file with that name. Open files keep their bytes.

        Raises OSError, and FileNotFoundError if it does not exist.
        """

    def discard_child(self, name: str, via: str) -> list[SyncTask]:
        """Rename a directory to `via`. Returns tasks that delete it with its content, see `removals`."""

    def rename_child(self, name: str, to: str) -> None: ...

    def late_targets(self, names: Iterable[str]) -> list[SyncTask]:
        """Tasks that make all writes so far to these files durable. Each opens its file only when synced, because there
        may be very many. Files deleted by then are skipped.
        """

    def entry_targets(self) -> list[SyncTask]:
        """The tasks that make the names created, renamed or deleted so far durable."""
