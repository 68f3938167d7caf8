"""The list of a backup's files, written last: a directory without one is no backup."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import crc32c

MANIFEST = "backup.json"
FORMAT = 1
_PART_BYTES = 1 << 20


class BadBackup(Exception):
    """A backup that is incomplete or damaged; the message names the file."""


class Manifest(NamedTuple):
    """What a backup holds."""

    made_by: str
    """The version of fencepost."""
    cluster_id: str
    node_id: int
    taken_at: str
    """ISO 8601, UTC."""
    ends: Mapping[str, int]
    """The end of each partition's log."""
    files: Mapping[str, tuple[int, int]]
    """Bytes and CRC-32C of each file, by its path in the backup."""

    @property
    def size_bytes(self) -> int:
        return sum(size for size, _ in self.files.values())

    def write(self, directory: Path) -> None:
        """Write the manifest durably. Raises OSError."""
        content: dict[str, Any] = {"format": FORMAT, **self._asdict()}
        temporary = directory / (MANIFEST + ".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(directory / MANIFEST)
        sync_directory(directory)


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a backup. Raises BadBackup and OSError."""
    place = directory / MANIFEST
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadBackup(f"{directory} has no {MANIFEST}: it is no backup, or the backup was not finished") from None
    except ValueError as error:
        raise BadBackup(f"{place} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise BadBackup(f"{place} has format {found!r}, and this version of fencepost reads {FORMAT}")
    try:
        files = {str(name): (int(size), int(crc)) for name, (size, crc) in content["files"].items()}
        ends = {str(name): int(end) for name, end in content["ends"].items()}
        return Manifest(
            str(content["made_by"]),
            str(content["cluster_id"]),
            int(content["node_id"]),
            str(content["taken_at"]),
            ends,
            files,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadBackup(f"{place} is damaged: {error!r}") from error


def copy(source: Path, target: Path, end: int | None = None) -> tuple[int, int]:
    """Copy the first `end` bytes of a file (all, if None) durably. Returns its size and CRC-32C. Raises OSError."""
    size, crc = 0, 0
    with source.open("rb") as read, target.open("xb") as written:
        os.chmod(target, 0o600)
        while end is None or size < end:
            part = read.read(_PART_BYTES if end is None else min(_PART_BYTES, end - size))
            if not part:
                break
            written.write(part)
            crc = crc32c.crc32c(part, crc)
            size += len(part)
        written.flush()
        os.fsync(written.fileno())
    return size, crc


def checksum(path: Path) -> tuple[int, int]:
    """The size and the CRC-32C of a file. Raises OSError."""
    size, crc = 0, 0
    with path.open("rb") as file:
        while part := file.read(_PART_BYTES):
            crc = crc32c.crc32c(part, crc)
            size += len(part)
    return size, crc


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
