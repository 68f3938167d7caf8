"""Writes a backup of linked files, up to the ends of the cut, and restores one."""

import os
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from fencepost.broker.log.backup.manifest import BadBackup, Manifest, checksum, copy, read_manifest, sync_directory
from fencepost.broker.log.backup.pins import PinnedLog
from fencepost.broker.log.recovery.snapshots import SNAPSHOT_SUFFIX
from fencepost.broker.log.storage.checkpoints import (
    CLEANER_OFFSETS,
    LOG_STARTS,
    LOG_STARTS_TWIN,
    decode_offsets,
    encode_offsets,
    is_exact,
)
from fencepost.broker.log.storage.layout import CORE_MOVES, CORE_STARTS, core_directories
from fencepost.broker.log.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, offset_in_name
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.topics import TopicPartition
from fencepost.version import __version__

PROPERTIES = ("meta.properties", "meta.properties.twin")
CHECKPOINTS = (LOG_STARTS, LOG_STARTS_TWIN, CLEANER_OFFSETS)
RESTORING = ".restoring"

Advance = Callable[[int], None]
"""Called with the bytes that were read."""


class Backup:
    """Writes the files of one backup into a new directory."""

    def __init__(self, source: Path, target: Path, advance: Advance) -> None:
        """`source` is the data directory."""
        self._source = source
        self._target = target
        self._advance = advance
        self._files: dict[str, tuple[int, int]] = {}
        self._ends: dict[str, int] = {}

    def add_log(self, log: PinnedLog, end: int) -> None:
        """The log below `end`: its last segment is copied up to there, without indexes; others are moved.

        The next start makes the indexes of the last segment anew, as after a crash. Raises OSError.
        """
        name = str(log.source.relative_to(self._source))
        directory = self._target / name
        directory.mkdir(mode=0o700, parents=True)
        last = log.last_base(end)
        assert last is not None, f"{name} has no segment below {end}"
        for file in sorted(os.listdir(log.path)):
            base = next((at for suffix in SEGMENT_SUFFIXES if (at := offset_in_name(file, suffix)) is not None), None)
            snapshot = offset_in_name(file, SNAPSHOT_SUFFIX)
            if (base is not None and base > last) or (snapshot is not None and snapshot > end):
                continue
            place = f"{name}/{file}"
            if base == last:
                if file.endswith(LOG_SUFFIX):
                    bounds = [behind for _, offset, behind in log.batches(last) if offset <= end]
                    self._note(place, copy(log.path / file, directory / file, max(bounds, default=0)))
            else:
                self._move(log.path / file, place)
        sync_directory(directory)
        self._ends[log.source.name] = end

    def add_file(self, name: str, content: bytes) -> None:
        """A small file of the data directory. Raises OSError."""
        path = self._target / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)
        self._note(name, checksum(path))

    def finish(self, cluster_id: str, node_id: int) -> Manifest:
        """Make the backup valid: its manifest lists all files. Raises OSError."""
        taken_at = datetime.now(UTC).isoformat(timespec="seconds")
        manifest = Manifest(__version__, cluster_id, node_id, taken_at, self._ends, self._files)
        manifest.write(self._target)
        return manifest

    def _move(self, source: Path, place: str) -> None:
        """Take a linked file over; on another file system, copy it."""
        target = self._target / place
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:
            self._note(place, copy(source, target))
            return
        self._note(place, checksum(target))

    def _note(self, place: str, size_and_crc: tuple[int, int]) -> None:
        self._files[place] = size_and_crc
        self._advance(size_and_crc[0])


def small_files(directory: Path) -> dict[str, bytes]:
    """The files of a data directory beside its logs that a backup needs, also of its cores. Raises OSError.

    They are read before the logs are linked. Retention may delete segments meanwhile, so the log starts are not exact.
    """
    found = {}
    for path in core_directories(directory).values():
        for name in (*PROPERTIES, *CHECKPOINTS, CORE_STARTS, CORE_MOVES):
            try:
                data = (path / name).read_bytes()
                content = encode_offsets(decode_offsets(data, name)) if is_exact(data) else data
            except (FileNotFoundError, CorruptLogFile):
                continue  # without the file, or with its copy
            found[str((path / name).relative_to(directory))] = content
    return found


def bytes_below(logs: Mapping[TopicPartition, PinnedLog]) -> int:
    """About as many bytes as a backup of these logs reads."""
    return sum(entry.stat().st_size for log in logs.values() for entry in os.scandir(log.path))


def restore(backup: Path, directory: Path, begin: Callable[[int], Advance]) -> Manifest:
    """Copy a backup into a new data directory, and check each byte. Raises BadBackup and OSError.

    The directory has its name only when all is there. `begin` gets the number of bytes, and returns a function that is
    called with what was copied.
    """
    manifest = read_manifest(backup)
    if directory.exists() and any(directory.iterdir()):
        raise BadBackup(f"{directory} is not empty: restore into a new directory")
    partial = directory.with_name(directory.name + RESTORING)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700, parents=True)
    advance = begin(manifest.size_bytes)
    for place, expected in manifest.files.items():
        target = partial / place
        if not target.resolve().is_relative_to(partial.resolve()):
            raise BadBackup(f"{backup}: the manifest names {place!r}, which is outside of the backup")
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            found = copy(backup / place, target)
        except FileNotFoundError:
            raise BadBackup(f"{backup / place} is missing") from None
        if found != expected:
            raise BadBackup(f"{backup / place} is damaged: it has {found[0]} bytes, or others, than when it was made")
        advance(found[0])
    for child in (*(one for one in partial.rglob("*") if one.is_dir()), partial):
        sync_directory(child)
    if directory.exists():
        directory.rmdir()
    partial.rename(directory)
    sync_directory(directory.parent)
    return manifest
