"""The store in this process's memory: `--memory`, the embedded broker and simulations."""

import errno
import os
from collections.abc import Iterable, Mapping
from functools import partial

from fencepost.broker.log.storage.store import (
    NEVER_WRITTEN,
    Bytes,
    FileJob,
    Piece,
    Staging,
    Store,
    StoredFile,
    SyncTask,
)


class MemoryFile:
    """A growing run of bytes behind the `StoredFile` port."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.data = bytearray()
        self.exists = False

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def modified_ms(self) -> int:
        return NEVER_WRITTEN  # there is no clock in here

    def is_deleted(self) -> bool:
        return False

    def create(self) -> None:
        self.exists = True

    def write(self, position: int, data: Bytes) -> None:
        self.exists = True
        if position == len(self.data):
            self.data += data
        else:
            self.data[position : position + len(data)] = data

    def stage(self, head: Bytes, data: Bytes) -> Staging | None:
        return None  # writes to memory never block

    def unstage(self, staged: Staging) -> None:
        """Nothing: nothing is ever staged."""

    def reserve(self, size_bytes: int) -> None:
        """Nothing: no flush could become cheaper."""

    def trim(self) -> None:
        """Nothing: nothing is ever reserved."""

    def read(self, position: int, length: int) -> bytes:
        return bytes(self.data[position : position + length])

    def piece(self, position: int, length: int) -> Piece:
        return self.read(position, length)

    def truncate(self, size_bytes: int) -> None:
        del self.data[size_bytes:]

    def sync_target(self) -> SyncTask | None:
        return None

    def writeback(self, max_bytes: int) -> tuple[int, SyncTask | None]:
        return 0, None

    def follow(self, name: str) -> None:
        """Nothing: the object does not depend on its name."""

    def close(self) -> None:
        """Nothing: there is no descriptor."""


class MemoryStore:
    """A directory of `MemoryFile`s; nothing outlives the process."""

    def __init__(self, place: str = "memory:") -> None:
        self.place = place
        self.files: dict[str, MemoryFile] = {}
        self._children: dict[str, MemoryStore] = {}

    def sizes(self) -> Mapping[str, int]:
        return {name: file.size_bytes for name, file in self.files.items() if file.exists}

    def children(self) -> list[str]:
        return list(self._children)

    def child(self, name: str) -> "Store":
        child = self._children.get(name)
        if child is None:
            child = self._children[name] = self.new_child(name)
        return child

    def new_child(self, name: str) -> "MemoryStore":
        """An empty directory of this kind; simulations override it to pass on their faults."""
        return MemoryStore(f"{self.place}/{name}")

    def open(self, name: str) -> StoredFile:
        file = self.files.get(name)
        if file is None:
            file = self.files[name] = self.new_file(name)
        return file

    def new_file(self, name: str) -> MemoryFile:
        """An empty file of this kind; simulations override it to inject faults."""
        return MemoryFile(f"{self.place}/{name}")

    def load(self, name: str) -> bytes | None:
        file = self.files.get(name)
        return None if file is None or not file.exists else file.read(0, file.size_bytes)

    def replace(self, name: str, data: Bytes, *, durable: bool = False, whole: bool = False) -> None:
        fresh = self.new_file(name)
        fresh.write(0, data)
        self.files[name] = fresh

    def replacement(self, name: str, data: Bytes) -> SyncTask:
        return FileJob(partial(self.replace, name, data, durable=True))

    def removals(self, names: Iterable[str]) -> list[SyncTask]:
        for name in names:
            self.remove(name)
        return []

    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    def rename(self, name: str, to: str) -> None:
        file = self.files.get(name)
        if file is None or not file.exists:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.place}/{name}")
        del self.files[name]
        file.place = f"{self.place}/{to}"
        self.files[to] = file

    def discard_child(self, name: str, via: str) -> list[SyncTask]:
        self._children.pop(name, None)
        return []

    def rename_child(self, name: str, to: str) -> None:
        self._children[to] = self._children.pop(name)

    def late_targets(self, names: Iterable[str]) -> list[SyncTask]:
        files = [file for name in names if (file := self.files.get(name)) is not None]
        return [target for file in files if (target := file.sync_target()) is not None]

    def entry_targets(self) -> list[SyncTask]:
        return []
