"""The port below the log: named byte files in directories. The rules stand above it, the bytes below it."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

Bytes = bytes | bytearray | memoryview
NEVER_WRITTEN = -1
"""When a file was written that never was, or of which nobody noted it."""


class CorruptLogFile(Exception):
    """A file of a log holds what cannot be there; names the file, the byte position and the reason."""

    def __init__(self, place: str, position: int, why: str) -> None:
        super().__init__(f"{place} at byte {position}: {why}")
        self.place = place
        self.position = position
        self.why = why


class FlushFailed(OSError):
    """An fsync failed. What was written since the last one that succeeded may be lost, and a second try would lie.

    The kernel marks pages clean that it could not write, so flushing again succeeds and proves nothing. Whoever meets
    this gives the file up: see `LogFlusher`.
    """


class Descriptor:
    """A file descriptor that is closed when nobody refers to it any more.

    A file region on its way to a socket keeps its descriptor open, whatever happens to the file meanwhile: closing by
    reference, not by call, is what makes that safe. Descriptor numbers are never reused under a reader.
    """

    __slots__ = ("__weakref__", "_close", "fd")

    def __init__(self, fd: int, close: Callable[[int], None] = os.close) -> None:
        self.fd = fd
        self._close = close

    def __del__(self) -> None:
        self._close(self.fd)


class FileRegion:
    """`length` bytes of an open file from `offset` on, for sendfile; valid as long as the object lives."""

    __slots__ = ("_descriptor", "length", "offset")

    def __init__(self, descriptor: Descriptor, offset: int, length: int) -> None:
        self._descriptor = descriptor
        self.offset = offset
        self.length = length

    @property
    def fd(self) -> int:
        """The descriptor to send from; do not close it."""
        return self._descriptor.fd

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileRegion(fd={self.fd}, offset={self.offset}, length={self.length})"


Piece = bytes | FileRegion
"""What a read hands out: small pieces as bytes, large ones as regions of a file."""


class SyncTask(Protocol):
    """Something that can be made durable from another thread, whatever the event loop does meanwhile."""

    def sync(self) -> None:
        """Return when it is durable. Raises OSError: what was written since the last success may then be lost."""


class Staging(SyncTask, Protocol):
    """What a thread does for `StoredFile.stage`: its `sync` returns when that is done, and never raises."""


END_MARK = bytes(8) + (1 << 30).to_bytes(4, "big") + bytes(5)
"""Stands in reserved room behind the last batch: the head of one that would be larger than the file, at which Kafka's
readers take a log to end. Zeros they would call damage."""


class StoredFile(Protocol):
    """One file. It comes into being with its first write, or by `create`."""

    @property
    def place(self) -> str:
        """The file's name for messages to people."""

    @property
    def size_bytes(self) -> int:
        """Bytes written and kept."""

    def modified_ms(self) -> int:
        """When it was last written, in epoch ms by the system's clock; NEVER_WRITTEN where unknown. Raises OSError."""

    def create(self) -> None:
        """Let it come into being now, empty, if it is not there. Raises OSError."""

    def write(self, position: int, data: Bytes) -> None:
        """Put all of `data` at `position`. Raises OSError; the file then holds what it held before."""

    def stage(self, head: Bytes, data: Bytes) -> "Staging | None":
        """Begin to write `data` behind all that was written, its first bytes as they are going to be: `head`.

        It counts when `data`, this very object, is given to `write` at the file's end; then nothing is left to do. Any
        other write comes first, and takes back what was staged; so does the next `stage`. None where that is of no use.
        Raises OSError.
        """

    def unstage(self, staged: "Staging") -> None:
        """Take back what was staged, unless it was written or taken back already."""

    def reserve(self, size_bytes: int) -> None:
        """Let END_MARK and zeros follow what was written, about `size_bytes` of them, that no size of ours counts.

        What is written over them leaves the size that the disk knows as it is, which makes a flush cheaper. They go by
        `trim` and `truncate`; after a crash they may be there. Nothing happens where the disk refuses.
        """

    def trim(self) -> None:
        """Take what is reserved away. Raises OSError."""

    def read(self, position: int, length: int) -> bytes:
        """At most `length` bytes from `position` on; fewer at the end of the file. Raises OSError."""

    def piece(self, position: int, length: int) -> Piece:
        """`length` bytes that exist, as cheaply as they can be sent. Raises OSError."""

    def truncate(self, size_bytes: int) -> None:
        """Drop everything from `size_bytes` on. Raises OSError."""

    def sync_target(self) -> SyncTask | None:
        """What to sync so that all writes so far are durable; None where nothing was ever written."""

    def writeback(self, max_bytes: int) -> "tuple[int, SyncTask | None]":
        """At most so many of the oldest bytes that no `sync_target` has covered: how many, and what brings them
        to the disk when synced, which makes nothing durable. Raises OSError.
        """

    def follow(self, name: str) -> None:
        """The file has got another name in its directory: go by that one from now on."""

    def close(self) -> None:
        """Let go of descriptors; the file can be used again all the same."""


class Store(Protocol):
    """One directory of files, and the directories in it. Directories come into being with their first file."""

    @property
    def place(self) -> str:
        """The directory's name for messages to people."""

    def sizes(self) -> Mapping[str, int]:
        """The files that exist, with their sizes in bytes."""

    def children(self) -> list[str]:
        """The directories in this one."""

    def child(self, name: str) -> "Store":
        """The directory `name` in this one, whether or not it exists yet."""

    def open(self, name: str) -> StoredFile:
        """The file `name`, whether or not it exists yet."""

    def load(self, name: str) -> bytes | None:
        """All of a small file, or None when there is none. Raises OSError."""

    def replace(self, name: str, data: Bytes, *, durable: bool = False, whole: bool = False) -> None:
        """Put a small file in place; on return it is durable if `durable`. Raises OSError; then the old one stands.

        Over a power cut that comes before the directory is synced, either the old file or the new one stands there if
        `whole` or `durable`; otherwise it may be torn, which its reader must notice.
        """

    def replacement(self, name: str, data: Bytes) -> SyncTask:
        """What puts a small file in place durably, as `replace` does, when it is synced: from any thread."""

    def removals(self, names: Iterable[str]) -> list[SyncTask]:
        """Take these files' names away, in this order, where they exist; what is returned deletes them when synced.

        That may be done by any thread, at any time or never: freeing a file's blocks can take its time, and the next
        start does what was left. Raises OSError.
        """

    def remove(self, name: str) -> None:
        """Delete a file; no error when there is none. Raises OSError."""

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, in place of any file that has it. Files opened before keep the bytes they had.

        Raises OSError, FileNotFoundError where there is none.
        """

    def discard_child(self, name: str, via: str) -> list[SyncTask]:
        """Rename a directory to `via`; what is returned deletes it with all that is in it, as that of `removals`."""

    def rename_child(self, name: str, to: str) -> None:
        """Give a directory another name."""

    def late_targets(self, names: Iterable[str]) -> list[SyncTask]:
        """What makes all writes so far to these files durable, as `StoredFile.target`, but opens each only when it is
        synced: there may be very many. Those that are gone by then are passed over.
        """

    def entry_targets(self) -> list[SyncTask]:
        """What to sync so that files made or deleted since the last call stay so."""
