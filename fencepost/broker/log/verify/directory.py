"""The check of a whole data directory, without a broker and without writing (`fencepost verify`)."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fencepost.broker.log.recovery.opening import ALL_TRUSTED
from fencepost.broker.log.recovery.snapshots import SNAPSHOT_SUFFIX
from fencepost.broker.log.storage.checkpoints import (
    CHECKSUM,
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    LOG_STARTS_TWIN,
    NO_TOPIC_ID,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    decode_offsets,
    decode_owners,
    decode_partition_metadata,
    encode_offsets,
    encode_partition_metadata,
    is_exact,
    topic_id_text,
)
from fencepost.broker.log.storage.layout import ACCEPT_LOSS, DELETED, MOVING, STRAY, UNCLEANABLE, partition_of
from fencepost.broker.log.storage.lock import LOCK_FILE
from fencepost.broker.log.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, offset_in_name
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.log.verify.files import child_names, file_names, load
from fencepost.broker.log.verify.partition import Expectations, PartitionCheck, RecordCheck
from fencepost.broker.log.verify.report import Level, Report
from fencepost.protocol.topics import METADATA_TOPIC, TopicPartition

MISSING = f"restore it from a backup, or make it with an empty file {ACCEPT_LOSS} in it to accept the loss"
_CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, LOG_STARTS_TWIN, HIGH_WATERMARKS, CLEANER_OFFSETS)
_HALF_DONE = (".tmp", ".cleaned", ".swap", ".deleted")
_IN_PARTITION = (LEADER_EPOCHS, PARTITION_METADATA)
_METADATA_FILE = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint|deleted-topics")
"""Other files of the metadata log; the caller checks snapshots (`broker/verification.py`)."""
_SUFFIXES = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)


@dataclass(frozen=True, slots=True)
class MetadataFacts:
    """The metadata, as far as it is readable, and the checks of the internal topics' records."""

    topic_ids: Mapping[str, bytes] | None = None
    """Topic ids by topic name; None if unknown."""
    partitions: Mapping[str, int] | None = None
    compacted: Collection[str] = ()
    """The topics whose segments may have gaps."""
    records: Mapping[str, RecordCheck] | None = None
    """Checks of records by topic."""
    own_files: Collection[str] = ()
    """Files and directories of the data directory that the caller checks."""
    on_cores: Collection[TopicPartition] = ()
    """The partitions that have a directory on any core, or on the way to one."""


class DirectoryCheck:
    def __init__(self, directory: Path, report: Report, *, shallow: bool = False) -> None:
        self._directory = directory
        self._report = report
        self._shallow = shallow
        names = file_names(directory)
        self._clean = CLEAN_SHUTDOWN in names
        self._exact: set[str] = set()
        self._offsets = {name: self._load_offsets(name) for name in _CHECKPOINTS if name in names}
        self.partitions = {tp: name for name in child_names(directory) if (tp := partition_of(name)) is not None}
        """The names of the partitions' directories."""

    @property
    def clean(self) -> bool:
        """Whether the last shutdown was clean: then no file may be torn."""
        return self._clean

    def total_bytes(self, chosen: Collection[TopicPartition]) -> int:
        """The number of bytes that a check of the `chosen` partitions reads. Raises OSError."""
        total = 0
        for tp in chosen:
            path = self._directory / self.partitions[tp]
            total += sum((path / name).stat().st_size for name in file_names(path) if name.endswith(LOG_SUFFIX))
        return total

    def check_surroundings(self, facts: MetadataFacts) -> None:
        """Check the files and directories that belong to no partition. Raises OSError."""
        known = {LOCK_FILE, CLEAN_SHUTDOWN, *_CHECKPOINTS, *facts.own_files}
        for name in file_names(self._directory):
            if name not in known:
                self._left_over(name, name.endswith(_HALF_DONE))
        for name in child_names(self._directory):
            if partition_of(name) is None and name not in facts.own_files:
                self._strange_directory(name)
        starts = [self._offsets.get(name) for name in (LOG_STARTS, LOG_STARTS_TWIN)]
        if LOG_STARTS in self._offsets and starts == [None, None]:
            meaning = "Records that DeleteRecords deleted become readable again: restore the file from a backup"
            self._report.damage(LOG_STARTS, "the file and its copy are both damaged", meaning)
        for name, offsets in self._offsets.items():
            for tp, offset in (offsets or {}).items():
                if tp in facts.on_cores and tp not in self.partitions:
                    continue  # a move to another core was interrupted
                if name == RECOVERY_POINTS and self._is_lost(tp, offset, facts):
                    what = f"is missing, but everything below offset {offset} was durable"
                    self._report.damage(str(tp), what, f"The partition is offline until you {MISSING}")
                elif offset < 0 or (tp not in self.partitions and offset > 0):
                    what = f"holds offset {offset} of {tp}, which has no directory"
                    meaning = "If the partition was not deleted, restore it from a backup"
                    self._report.add(Level.WARNING, name, what, meaning)

    def _is_lost(self, tp: TopicPartition, offset: int, facts: MetadataFacts) -> bool:
        """Whether the directory of a partition that still exists is missing."""
        exists = tp.partition < (facts.partitions or {METADATA_TOPIC: 1}).get(tp.topic, 0)
        return tp not in self.partitions and offset > 0 and RECOVERY_POINTS in self._exact and exists

    def check_partition(self, tp: TopicPartition, facts: MetadataFacts) -> None:
        """Check one partition, with all files in its directory. Raises OSError."""
        name = self.partitions[tp]
        directory = self._directory / name
        self._check_names(name, file_names(directory))
        self._check_identity(tp, name, facts)
        before = len(self._report.findings)
        if self._has_links(name):
            return
        PartitionCheck(directory, self.expectations(tp, facts), self._report).run()
        if len(self._report.findings) == before or not self._report.damaged:
            self._check_bounds(tp)

    def expectations(self, tp: TopicPartition, facts: MetadataFacts) -> Expectations:
        """What the checkpoint files of the data directory say about a partition."""
        durable = self._offset(RECOVERY_POINTS, tp)
        compacted = tp.topic in facts.compacted or self._offset(CLEANER_OFFSETS, tp) > 0
        expected = Expectations(
            recovery_point=durable,
            known_end=durable,
            log_start_offset=self._offset(LOG_STARTS, tp),
            compacted=compacted,
            shallow=self._shallow,
            records=(facts.records or {}).get(tp.topic),
            exact_start={LOG_STARTS, LOG_STARTS_TWIN} <= self._exact,
        )
        return replace(expected, recovery_point=ALL_TRUSTED) if self._clean else expected

    def _check_bounds(self, tp: TopicPartition) -> None:
        """Check the checkpoints against the log's end; `PartitionCheck` reports a log that ends too early."""
        facts = self._report.partitions[-1]
        for name in (LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
            offset = self._offset(name, tp)
            if offset > facts.log_end_offset:
                what = f"{tp} is at {offset}, beyond the log's end at {facts.log_end_offset}"
                level = Level.DAMAGE if self._clean else Level.WARNING
                self._report.add(level, name, what, "The next start uses the log's end instead")

    def _check_identity(self, tp: TopicPartition, name: str, facts: MetadataFacts) -> None:
        file = f"{name}/{PARTITION_METADATA}"
        data = load(self._directory / name / PARTITION_METADATA)
        if data is None:
            meaning = "The next start assigns the log to the topic in the directory's name"
            self._report.add(Level.WARNING, file, "is missing", meaning)
            found = NO_TOPIC_ID
        else:
            try:
                found = decode_partition_metadata(data, file)
            except CorruptLogFile as error:
                self._report.damage(file, error.why, "The partition is offline until the file is restored")
                return
            if data.strip() != encode_partition_metadata(found):
                self._report.damage(
                    file, "was changed after it was written", "This has no effect if the topic id is right"
                )
        if facts.topic_ids is None:
            return
        wanted = facts.topic_ids.get(tp.topic)
        if wanted is None or tp.partition >= (facts.partitions or {}).get(tp.topic, 0):
            what = "is not in the metadata"
            meaning = (
                "Its topic was deleted, or the metadata is damaged; the broker keeps it until the metadata says deleted"
            )
            self._report.add(Level.WARNING, name, what, meaning)
        elif found not in (wanted, NO_TOPIC_ID):
            what = f"holds topic id {topic_id_text(found)}, the metadata has {topic_id_text(wanted)}"
            meaning = (
                "The partition is offline: write the topic id of the metadata into the file, or move the directory away"
            )
            self._report.damage(file, what, meaning)

    def _check_names(self, label: str, names: Collection[str]) -> None:
        bases = {offset_in_name(name, LOG_SUFFIX) for name in names}
        for name in names:
            if name in _IN_PARTITION or _METADATA_FILE.fullmatch(name):
                continue
            suffix = next((s for s in _SUFFIXES if offset_in_name(name, s) is not None), None)
            if suffix is None:
                if name == UNCLEANABLE:
                    meaning = "The log grows: the broker tries to compact it again after the next start"
                    self._report.add(Level.WARNING, f"{label}/{name}", "says why the last compaction failed", meaning)
                elif name == ACCEPT_LOSS:
                    meaning = "The next start truncates this log at its first damaged batch"
                    self._report.add(Level.WARNING, f"{label}/{name}", "exists", meaning)
                else:
                    self._left_over(f"{label}/{name}", name.endswith(_HALF_DONE))
            elif suffix != SNAPSHOT_SUFFIX and offset_in_name(name, suffix) not in bases:
                self._report.add(Level.NOTE, f"{label}/{name}", "belongs to no segment", "The next start deletes it")

    def _has_links(self, name: str) -> bool:
        """Whether files of a partition are links. A partition's directory may be one."""
        path = self._directory / name
        links = [file for file in file_names(path) if (path / file).is_symlink() and _of_segment(file)]
        for file in links:
            meaning = "The partition is offline until the file itself is there"
            self._report.damage(f"{name}/{file}", "is a link, and the broker follows no links to files", meaning)
        return bool(links)

    def _left_over(self, file: str, half_done: bool) -> None:
        what = "was left unfinished by a crash" if half_done else "is not a file of this broker"
        meaning = "The next start finishes or deletes it" if half_done else "The broker ignores it"
        self._report.add(Level.NOTE if half_done else Level.WARNING, file, what, meaning)

    def _strange_directory(self, name: str) -> None:
        if name.endswith(STRAY):
            what = "is a copy, or the log of a deleted topic"
            meaning = "The broker does not read it: delete it when you no longer need it"
        elif name.endswith(DELETED):
            what, meaning = "is a partition whose deletion a crash interrupted", "The next start deletes it"
        elif name.endswith(MOVING):
            what, meaning = "is on its way to another core, and was not checked", "The next start finishes that"
        else:
            what, meaning = "is not a directory of this broker", "The broker ignores it"
        self._report.add(Level.NOTE if name.endswith((DELETED, MOVING)) else Level.WARNING, name, what, meaning)

    def _offset(self, name: str, tp: TopicPartition) -> int:
        offsets = self._offsets.get(name)
        if offsets is None and name == LOG_STARTS:
            offsets = self._offsets.get(LOG_STARTS_TWIN)
        return (offsets or {}).get(tp, 0)

    def _load_offsets(self, name: str) -> dict[TopicPartition, int] | None:
        try:
            data = load(self._directory / name) or b""
            offsets = decode_offsets(data, name)
            exact = is_exact(data)
            if CHECKSUM in data and data != encode_offsets(offsets, decode_owners(data, name), exact=exact):
                raise CorruptLogFile(name, 0, "was changed after it was written")
            if exact:
                self._exact.add(name)
            return offsets
        except CorruptLogFile as error:
            meaning = "The next start reads more of the logs without it"
            if name in (LOG_STARTS, LOG_STARTS_TWIN):
                meaning = "The next start uses the other of the two files"
            self._report.damage(name, error.why, meaning, position=error.position)
            return None


def _of_segment(file: str) -> bool:
    return any(offset_in_name(file, suffix) is not None for suffix in SEGMENT_SUFFIXES)
