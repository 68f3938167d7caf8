"""Opens the files of a data directory read-only."""

import os
from pathlib import Path

import crc32c

from fencepost.broker.log.compaction.swap import SWAP
from fencepost.broker.log.storage.indexes import FileSeal
from fencepost.broker.log.storage.segment import LOG_SUFFIX, file_name, offset_in_name


class ReadFile:
    """A file opened for reading only, by position."""

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.size_bytes = os.fstat(self._fd).st_size

    def read(self, position: int, length: int) -> bytes:
        """At most `length` bytes; fewer at the end. Raises OSError."""
        parts = []
        while length > 0:
            part = os.pread(self._fd, length, position)
            if not part:
                break
            parts.append(part)
            position += len(part)
            length -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        os.close(self._fd)


class ReadSegment:
    """The batches of one segment, for `scanning.batches`."""

    def __init__(self, directory: Path, base_offset: int, ending: str = "") -> None:
        self.base_offset = base_offset
        self.name = file_name(base_offset, LOG_SUFFIX) + ending
        self._file = ReadFile(directory / self.name)

    @property
    def file(self) -> ReadFile:
        return self._file

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes


def segment_bases(names: list[str]) -> list[int]:
    return sorted(base for name in names if (base := offset_in_name(name, LOG_SUFFIX)) is not None)


def swapped_bases(names: list[str]) -> list[int]:
    """The base offsets of the compacted segments whose swap is not finished (`.swap`), rising."""
    return sorted(base for name in names if (base := offset_in_name(name, LOG_SUFFIX + SWAP)) is not None)


def file_names(directory: Path) -> list[str]:
    """The files in a directory, sorted. Raises OSError."""
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if not entry.is_dir())


def child_names(directory: Path) -> list[str]:
    """The directories in a directory, also links to directories, as the broker finds them, sorted. Raises OSError."""
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def load(path: Path) -> bytes | None:
    """The content of a small file; None if it does not exist. Raises OSError."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def seal_of(data: bytes) -> FileSeal:
    return FileSeal(len(data), int(crc32c.crc32c(data)))
