"""Hard links to a running broker's files: they keep what compaction, retention and deletions take away meanwhile.

The links are made before the cut, so that a link never has less than the log had below its end at the cut: a compaction
after the cut may drop a record for one above the cut (decision 0068).
"""

import errno
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from fencepost.broker.log.recovery.snapshots import SNAPSHOT_SUFFIX
from fencepost.broker.log.storage.layout import partition_of
from fencepost.broker.log.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, file_name, offset_in_name
from fencepost.protocol.batch_header import HEADER_SIZE, CorruptBatch, read_header
from fencepost.protocol.topics import TopicPartition

ATTEMPTS = 200
PAUSE_SECONDS = 0.005
_REPLACING = LOG_SUFFIX + ".swap"
SMALL_FILES = ("leader-epoch-checkpoint", "partition.metadata")
METADATA_FILES = (".checkpoint", "deleted-topics")
"""The ends of the names of further files of the metadata log."""


class PinnedLog:
    """The linked files of one partition."""

    def __init__(self, source: Path, pinned: Path) -> None:
        self.source = source
        self.path = pinned
        self.bases: set[int] = set()
        """Base offsets of the segments."""

    def pin(self) -> None:
        """Link what is new: segments above the linked ones, and what belongs to linked ones.

        While a compaction replaces segments, some have no name, or those of two states are mixed. Then all is linked
        anew. Raises OSError, above all FileNotFoundError if the log is being deleted.
        """
        for _ in range(ATTEMPTS):
            before = _names(self.source)
            if not _is_replaced(before) and self._link_segments(before):
                after = _names(self.source)
                if not _is_replaced(after) and _bases(before) == {base for base in _bases(after) if base in self.bases}:
                    self._link_others(after)
                    return
            shutil.rmtree(self.path, ignore_errors=True)
            self.bases = set()
            time.sleep(PAUSE_SECONDS)
        raise OSError(errno.EBUSY, "its segments are replaced all the time, so they cannot be linked", str(self.source))

    def _link_segments(self, names: Collection[str]) -> bool:
        """Link the segments above the linked ones. Returns whether all of them were still there."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        newest = max(self.bases, default=-1)
        for base in sorted(base for base in _bases(names) if base > newest):
            name = file_name(base, LOG_SUFFIX)
            if not _link(self.source / name, self.path / name):
                return False
            self.bases.add(base)
        return True

    def _link_others(self, names: Collection[str]) -> None:
        """Link indexes, snapshots and small files. Indexes that may be of another state of a segment are left out."""
        for name in names:
            base = next((at for suffix in SEGMENT_SUFFIXES if (at := offset_in_name(name, suffix)) is not None), None)
            if base is None:
                if name in SMALL_FILES:
                    (self.path / name).unlink(missing_ok=True)
                is_snapshot = offset_in_name(name, SNAPSHOT_SUFFIX) is not None
                if is_snapshot or name in SMALL_FILES or name.endswith(METADATA_FILES):
                    _link(self.source / name, self.path / name)
            elif base in self.bases and not (self.path / name).exists():
                _link(self.source / name, self.path / name)
                if not _same_file(self.source, self.path, file_name(base, LOG_SUFFIX)):
                    (self.path / name).unlink(missing_ok=True)

    def is_current(self) -> bool:
        """Whether the small files are still those that were linked."""
        return all(_inode(self.source / name) == _inode(self.path / name) for name in SMALL_FILES)

    def last_base(self, end: int) -> int | None:
        """The base offset of the segment that has the last offset below `end`, or begins there; None without one."""
        return max((base for base in self.bases if base <= end), default=None)

    def batches(self, base: int) -> Iterator[tuple[int, int, int]]:
        """The position of each whole batch of a segment, the offset behind it, and the position behind it.

        Ends at the first bytes that are no batch: space that is reserved, or a batch that is being written.
        """
        position = 0
        with (self.path / file_name(base, LOG_SUFFIX)).open("rb") as file:
            while True:
                file.seek(position)
                head = file.read(HEADER_SIZE)
                try:
                    header = read_header(memoryview(head), 0, whole=False)
                except CorruptBatch:
                    return
                if header.base_offset < base or header.size_bytes <= 0:
                    return
                behind = position + header.size_bytes
                if os.fstat(file.fileno()).st_size < behind:
                    return
                yield position, header.last_offset + 1, behind
                position = behind


def partitions_in(directory: Path) -> list[str]:
    """The names of the partitions' directories, which may be links."""
    with os.scandir(directory) as entries:
        return sorted(one.name for one in entries if one.is_dir() and partition_of(one.name))


def pin_all(directory: Path, pinned: Path, logs: dict[TopicPartition, PinnedLog]) -> None:
    """Link the files of all partitions, new ones included. Raises OSError."""
    for name in partitions_in(directory):
        tp = partition_of(name)
        assert tp is not None
        log = logs.get(tp)
        if log is None or log.source != directory / name:  # it may have moved to another core
            log = PinnedLog(directory / name, pinned / name)
        try:
            log.pin()
        except FileNotFoundError:
            continue  # its topic is being deleted
        if log.bases:
            logs[tp] = log


def uncovered(logs: Mapping[TopicPartition, PinnedLog], ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions whose links end below their end, as a segment was begun after it was linked, or are of old files:
    a new leader epoch is in another file than the linked one.
    """
    return [tp for tp, end in ends.items() if tp not in logs or not (logs[tp].is_current() and _covers(logs[tp], end))]


def _covers(log: PinnedLog, end: int) -> bool:
    base = log.last_base(end)
    if base is None:
        return False
    return base == end or any(behind >= end for _, behind, _ in log.batches(base))


def _bases(names: Collection[str]) -> set[int]:
    return {base for name in names if (base := offset_in_name(name, LOG_SUFFIX)) is not None}


def _is_replaced(names: Collection[str]) -> bool:
    """Whether a compaction is giving segments their names: until then, those that they replace have none."""
    return any(name.endswith(_REPLACING) for name in names)


def _names(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]


def _link(source: Path, target: Path) -> bool:
    """Link a file, unless it has gone or is linked; whether it is linked now."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return True
    except FileNotFoundError:
        return False
    return True


def _same_file(source: Path, pinned: Path, name: str) -> bool:
    return _inode(source / name) == _inode(pinned / name) is not None


def _inode(path: Path) -> int | None:
    """None if there is no such file."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
