"""Work on files that takes its time, made ready by the event loop and done by whoever syncs it, in any thread."""

from typing import TYPE_CHECKING

from fencepost.broker.log.storage.store import Bytes

if TYPE_CHECKING:
    from fencepost.broker.log.storage.files import FileStore


class DirectorySync:
    """One fsync of a directory, which makes the names in it durable."""

    def __init__(self, store: "FileStore") -> None:
        self._store = store
        self._changes = store.changes

    def sync(self) -> None:
        self._store.sync_entries(self._changes)


class LateSync:
    """A flush of a file that is opened only for it, so that any number of them may wait. One that is gone by then was
    deleted, and needs none.
    """

    def __init__(self, store: "FileStore", name: str) -> None:
        self._store = store
        self._name = name

    def sync(self) -> None:
        self._store.sync_file(self._name)


class Replacement:
    """A small file that waits to be put in place, durably."""

    def __init__(self, store: "FileStore", name: str, data: Bytes) -> None:
        self._store = store
        self._name = name
        self._data = data

    def sync(self) -> None:
        self._store.put(self._name, self._data)


class Deletion:
    """Frees the space of what has lost its name already; so it may wait, and be left to the next start."""

    def sync(self) -> None:
        """Do it. Raises OSError."""
        raise NotImplementedError


class Removal(Deletion):
    """A file that has lost its name and waits to be deleted."""

    def __init__(self, store: "FileStore", name: str) -> None:
        self._store = store
        self._name = name

    def sync(self) -> None:
        self._store.unlink(self._name)


class TreeRemoval(Deletion):
    """A directory that has lost its name and waits to be deleted with all that is in it.

    The new name is durable first: were it lost and the deletions not, the next start would find half of a directory.
    """

    def __init__(self, parent: "FileStore", name: str) -> None:
        self._parent = parent
        self._name = name
        self._changes = parent.changes

    def sync(self) -> None:
        self._parent.sync_entries(self._changes)
        self._parent.remove_tree(self._name)
