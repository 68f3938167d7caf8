"""The store on a file system: a bounded number of descriptors, and no partial writes after a failure."""

import errno
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from fencepost.broker.log.storage.descriptor_pool import DescriptorPool
from fencepost.broker.log.storage.disk import SYSTEM_DISK, Disk, remove_tree
from fencepost.broker.log.storage.disk_file import DiskFile
from fencepost.broker.log.storage.lock import LOCK_FILE
from fencepost.broker.log.storage.store import Bytes, Deletion, FileJob, FlushFailed, Store, StoredFile, SyncTask

_READ_BYTES = 1 << 20
_TEMPORARY = ".tmp"
_DELETED = ".deleted"
_MODE, _MODE_ABOVE = 0o700, 0o777

logger = logging.getLogger(__name__)


class FileStore:
    """A directory on disk behind the `Store` port; created with its first file, with mode 0700."""

    def __init__(
        self,
        path: Path,
        pool: DescriptorPool | None = None,
        parent: "FileStore | None" = None,
        disk: Disk = SYSTEM_DISK,
    ) -> None:
        self.path = path
        self.disk = disk
        self.changes = 1
        """Number of changed names, plus 1: the changes of an earlier process may not be durable."""
        self._durable_changes = 0
        self._place = str(path)
        self._pool = DescriptorPool() if pool is None else pool
        self._parent = parent
        self._children: dict[str, FileStore] = {}
        self._made = False

    @property
    def place(self) -> str:
        return self._place

    def make(self) -> None:
        """Create the directory if it does not exist. Raises OSError."""
        if self._made:
            return
        try:
            if self._parent is None:
                _make_data_directory(self.disk, self.path, self._sync_directory)
            else:
                self.disk.mkdir(self._place, 0o700)
                self._parent.changes += 1
        except FileExistsError:
            pass  # created by an earlier run
        self._made = True

    def sizes(self) -> Mapping[str, int]:
        try:
            return {entry.name: entry.size_bytes for entry in self.disk.listing(self._place) if not entry.is_directory}
        except FileNotFoundError:
            return {}

    def children(self) -> list[str]:
        try:
            return [entry.name for entry in self.disk.listing(self._place) if entry.is_directory]
        except FileNotFoundError:
            return []

    def child(self, name: str) -> Store:
        child = self._children.get(name)
        if child is None:
            child = self._children[name] = FileStore(self.path / name, self._pool, self, self.disk)
        return child

    def open(self, name: str) -> StoredFile:
        return DiskFile(self, name, self._pool)

    def load(self, name: str) -> bytes | None:
        try:
            fd = self.disk.open(self._path_of(name), os.O_RDONLY | os.O_CLOEXEC, 0)
        except FileNotFoundError:
            return None
        data = bytearray()
        try:
            while part := self.disk.pread(fd, _READ_BYTES, len(data)):
                data += part
        finally:
            self.disk.close(fd)
        return bytes(data)

    def replace(self, name: str, data: Bytes, *, durable: bool = False, whole: bool = False) -> None:
        self.make()
        self._put(name, data, durable or whole)
        self.changes += 1
        if durable:
            for entry in self.entry_targets():
                entry.sync()

    def _write_whole(self, path: str, data: Bytes, synced: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = self.disk.open(path, flags, 0o600)
        try:
            written = 0
            with memoryview(data) as view:
                while written < len(view):
                    count = self.disk.pwrite(fd, view[written:], written)
                    if count == 0:
                        raise OSError(errno.EIO, "the file system accepted no more bytes", path)
                    written += count
            if synced:
                self.disk.fsync(fd)
        finally:
            self.disk.close(fd)

    def replacement(self, name: str, data: Bytes) -> SyncTask:
        self.make()
        return FileJob(partial(self.put, name, data))

    def put(self, name: str, data: Bytes) -> None:
        """Replace a file, and return when it is durable; callable from any thread, because it counts no change."""
        self._put(name, data, True)
        self._sync_directory(self._place)

    def _put(self, name: str, data: Bytes, synced: bool) -> None:
        temporary = self._path_of(name + _TEMPORARY)
        try:
            self._write_whole(temporary, data, synced)
            self.disk.rename(temporary, self._path_of(name))
        except OSError:
            self._unlink(temporary)
            raise

    def removals(self, names: Iterable[str]) -> list[SyncTask]:
        found: list[SyncTask] = []
        for name in names:
            try:
                self.rename(name, name + _DELETED)
            except FileNotFoundError:
                continue
            except OSError:
                self.remove(name)  # the disk is too full for a new name, so free the space now
                continue
            found.append(Deletion(partial(self.unlink, name + _DELETED)))
        return found

    def unlink(self, name: str) -> None:
        """Delete a file if it exists; callable from any thread, because it counts no change. Raises OSError."""
        self._unlink(self._path_of(name))

    def remove(self, name: str) -> None:
        self._unlink(self._path_of(name))
        self.changes += 1

    def rename(self, name: str, to: str) -> None:
        self.disk.rename(self._path_of(name), self._path_of(to))
        self.changes += 1

    def discard_child(self, name: str, via: str) -> list[SyncTask]:
        if name != via:
            try:
                self.rename_child(name, via)
            except FileNotFoundError:
                self._children.pop(name, None)
                return []
        return [Deletion(partial(self._remove_tree, via, self.changes))]

    def rename_child(self, name: str, to: str) -> None:
        self.disk.rename(self._path_of(name), self._path_of(to))
        self._children.pop(name, None)
        self.changes += 1

    @property
    def parent(self) -> "FileStore | None":
        return self._parent

    def adopt_child(self, other: "FileStore", name: str, to: str | None = None) -> None:
        """Move a directory here from another one of the same disk, under another name if given. Raises OSError."""
        to = to or name
        self.disk.rename(other._path_of(name), self._path_of(to))
        other._children.pop(name, None)
        self._children.pop(to, None)
        other.changes += 1
        self.changes += 1

    def late_targets(self, names: Iterable[str]) -> list[SyncTask]:
        return [FileJob(partial(self.sync_file, name)) for name in names]

    def sync_file(self, name: str) -> None:
        """Make a file's bytes durable if it exists; callable from any thread. Raises OSError."""
        try:
            self._sync(self._path_of(name), os.O_NOFOLLOW, self.disk.fdatasync, "fdatasync")
        except FileNotFoundError:
            return

    def entry_targets(self) -> list[SyncTask]:
        sync_targets: list[SyncTask] = []
        if self.changes != self._durable_changes:
            sync_targets.append(FileJob(partial(self.sync_entries, self.changes)))
        if self._parent is not None:
            sync_targets += self._parent.entry_targets()
        return sync_targets

    def sync_entries(self, changes: int) -> None:
        """Make the first `changes` changes of names durable; callable from any thread. Raises OSError.

        Changes count as durable only after a successful sync: a call during another thread's sync, or after a failed
        one, syncs again.
        """
        if changes <= self._durable_changes:
            return
        try:
            self._sync_directory(self._place)
        except FileNotFoundError:
            pass  # deleted since: the parent directory makes the deletion durable
        self._durable_changes = max(self._durable_changes, changes)

    def _sync_directory(self, path: str) -> None:
        self._sync(path, os.O_DIRECTORY, self.disk.fsync, "fsync of the directory")

    def _sync(self, path: str, flags: int, sync: Callable[[int], None], what: str) -> None:
        fd = self.disk.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, 0)
        try:
            sync(fd)
        except OSError as error:
            raise FlushFailed(error.errno, f"{what}: {error.strerror}", path) from error
        finally:
            self.disk.close(fd)

    def _path_of(self, name: str) -> str:
        return f"{self._place}/{name}"

    def _unlink(self, path: str) -> None:
        try:
            self.disk.unlink(path)
        except FileNotFoundError:
            pass  # deleted already

    def _remove_tree(self, name: str, changes: int) -> None:
        """Delete a directory, renamed by these `changes`, with its content; callable from any thread. Raises OSError.

        It makes the new name durable first. Otherwise a crash could undo the rename and keep some deletions, and the
        next start would find an incomplete directory.
        """
        self.sync_entries(changes)
        remove_tree(self.disk, self._path_of(name))


def _make_data_directory(disk: Disk, path: Path, sync: Callable[[str], None]) -> None:
    """Create the directory and its missing parents, and make them durable before any file is in it. Raises OSError.

    No later step syncs the directories above it; `sync` makes the names in a directory durable. An existing empty
    directory may have been created by hand, or by a process that died before its name was durable. Then its name is
    synced, too, and so are those of the parents that hold nothing else.
    """
    made = _make(disk, path, _MODE)
    if not made and any(entry.name != LOCK_FILE for entry in disk.listing(str(path))):
        return
    for number, above in enumerate(Path(os.path.abspath(path)).parents):
        try:
            sync(str(above))
            if number + 1 >= made and len(disk.listing(str(above))) > 1:
                return
        except PermissionError:
            if number < made:
                raise
            return  # a directory that this user cannot open was not created by an earlier run


def _make(disk: Disk, path: Path, mode: int) -> int:
    """Create the directory and its missing parents. Returns the number of created directories."""
    try:
        disk.mkdir(str(path), mode)
    except FileExistsError:
        return 0
    except FileNotFoundError:
        above = _make(disk, path.parent, _MODE_ABOVE)
        disk.mkdir(str(path), mode)
        return above + 1
    return 1
