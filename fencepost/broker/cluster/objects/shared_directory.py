"""Objects as files in a directory that all brokers share: one host, or a network file system.

Written without obstore, whose local store renames files but never syncs them.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from fencepost.broker.cluster.engine import StoreUnavailable
from fencepost.broker.log.storage.store import Bytes

UNFINISHED = ".part"
"""The suffix of a file until it is whole. Only the broker that claimed an id writes its file."""
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
"""What file systems without hard links say."""
PARTS_MAX = 1024
"""The most buffers that the system accepts in one call."""


class SharedDirectory:
    """A `Backend` of files."""

    def __init__(self, root: Path) -> None:
        """Use the directory `root`, and create it. Raises StoreUnavailable, also if its parent does not exist."""
        self._root = root
        self._durable: set[str] = set()
        """Folders whose names are durable."""
        try:
            root.mkdir(exist_ok=True)
            _sync_directory(root.parent)
        except OSError as error:
            raise _unavailable(error, "create", root) from error

    def write(self, name: str, parts: Sequence[Bytes], replace: bool = False) -> None:
        """As the port says: write a second file, sync it, give it the name, and sync the folder."""
        path = self._root / name
        unfinished = f"{path}{UNFINISHED}"
        try:
            self._make_folder(path.parent)
            fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                _write_all(fd, parts)
                os.fsync(fd)
            finally:
                os.close(fd)
            if replace or not _link(unfinished, path):
                os.replace(unfinished, path)
            _sync_directory(path.parent)
        except FileExistsError:
            Path(unfinished).unlink(missing_ok=True)
            raise
        except OSError as error:
            raise _unavailable(error, "write", path) from error

    def read(self, name: str, position: int, size: int) -> bytes:
        path = self._root / name
        parts = []
        try:
            with path.open("rb", buffering=0) as file:
                while size > 0 and (part := os.pread(file.fileno(), size, position)):
                    parts.append(part)
                    position += len(part)
                    size -= len(part)
        except FileNotFoundError as error:
            if self._root.is_dir():
                raise
            raise _unavailable(error, "read", self._root) from error  # not mounted
        except OSError as error:
            raise _unavailable(error, "read", path) from error
        return b"".join(parts)

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            for path in (self._root / name, self._root / f"{name}{UNFINISHED}"):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise _unavailable(error, "delete", path) from error

    def names(self) -> Iterator[str]:
        try:
            for folder in sorted(path for path in self._root.iterdir() if path.is_dir()):
                found = {file.name.removesuffix(UNFINISHED) for file in folder.iterdir()}
                yield from (f"{folder.name}/{name}" for name in sorted(found))
        except OSError as error:
            raise _unavailable(error, "list", self._root) from error

    def _make_folder(self, folder: Path) -> None:
        if folder.name not in self._durable:
            folder.mkdir(exist_ok=True)
            _sync_directory(self._root)
            self._durable.add(folder.name)


def _link(unfinished: str, path: Path) -> bool:
    """Give a file its name, unless another one has it: FileExistsError. False if the file system cannot do that."""
    try:
        os.link(unfinished, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(f"{path} exists") from error
        return False
    os.unlink(unfinished)
    return True


def _write_all(fd: int, parts: Sequence[Bytes]) -> None:
    views = [memoryview(part) for part in parts if len(part)]
    while views:
        written = os.writev(fd, views[:PARTS_MAX])
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unavailable(error: OSError, action: str, path: Path) -> StoreUnavailable:
    return StoreUnavailable(f"cannot {action} {path} in the shared directory of the cluster: {error.strerror}")
