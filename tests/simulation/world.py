"""Some partitions over a simulated disk, and beside them a plain record of what was promised to whom."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import trio

from fencepost.broker.handlers.produce_reply import Write
from fencepost.broker.log.compaction.cleanable import cleanable_range
from fencepost.broker.log.compaction.cleaning import Cleaning, CleaningLimits, drive
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability.flusher import Durability
from fencepost.broker.log.durability.large_writes import stage
from fencepost.broker.log.housekeeping import housekeep
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producer_state import AppendOrigin
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.files import DescriptorPool, FileStore
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import FlushFailed
from fencepost.protocol.batch_header import assign_offset
from fencepost.protocol.control_records import end_txn_marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.topics import TopicPartition
from tests.kit.disk_faults import Fault
from tests.kit.sim_disk import SimDisk
from tests.kit.trimming import delete_records

NOW_MS = 1_700_000_000_000
DATA = Path("/data")
KEYS = 5
"""So many keys take turns, batch by batch."""
DESCRIPTORS = 6
"""Few, so that files are closed and opened again all the time."""


class Kept(NamedTuple):
    """One batch as it stands in the log."""

    base_offset: int
    last_offset: int
    data: bytes


@dataclass
class Partition:
    """What one partition of one topic id was given, and what it said."""

    topic_id: bytes
    config: LogConfig
    batches: list[Kept] = field(default_factory=list)
    high: int = 0
    """Everything below was acknowledged: in `fsync` durability it is durable."""
    deleted_below: int = 0
    """What DeleteRecords answered: nothing below may ever be read again."""
    start: int = 0
    """The log start offset that was last seen; retention moves it, too."""
    earlier_ids: frozenset[bytes] = frozenset()
    """The topics that were deleted before this one was made, as the metadata would remember them."""
    unsure: bool = False
    """A call that moves the start or the whole partition away failed half way: both answers are right."""


WRITEBACK_BYTES = 300


class Promise(NamedTuple):
    """The state of a `Partition` at one moment."""

    partition: Partition
    count: int
    high: int
    deleted_below: int
    start: int
    unsure: bool

    @property
    def end(self) -> int:
        """The log end offset."""
        return self.partition.batches[self.count - 1].last_offset + 1 if self.count else 0


Promises = dict[TopicPartition, Promise]


class ProcessEnds(Exception):
    """What the broker does when a flush fails: it stops, and the next start looks at what there is."""


class World:
    """A data directory, its logs and its writers; an operation that is refused leaves its writer where it was."""

    def __init__(self, durability: Durability, faults: Iterable[Fault] = ()) -> None:
        self.durability: Durability = durability
        self.disk = SimDisk()
        self.disk.faults = list(faults)
        self.partitions: dict[TopicPartition, Partition] = {}
        self.reserve = durability == "fsync"
        """Whether files are made larger ahead of small flushes, as the broker does in `fsync`."""
        self.staging = True
        """Whether some batches go into their files as large ones do."""
        self._appends = 0
        self.refused = 0
        """Operations that the log answered with KAFKA_STORAGE_ERROR or an OSError."""
        self.now_ms = NOW_MS
        self.deleted_topic_ids: set[bytes] = set()
        self._sequences: dict[tuple[bytes, int], int] = {}
        self._epochs: dict[tuple[bytes, int], int] = {}
        self.directory = self.open()

    def open(self) -> LogManager:
        """Open the data directory; a start that fails is tried once more, as an init system would."""
        self._uncleanable: set[TopicPartition] = set()
        try:
            return self._open()
        except OSError:
            self.refused += 1
            return self._open()

    def _open(self) -> LogManager:
        store = FileStore(DATA, DescriptorPool(DESCRIPTORS), disk=self.disk)
        store.make()
        directory = LogManager.over(store, self.durability)
        directory.deleted_topic_ids = self.deleted_topic_ids
        return directory

    def promises(self) -> Promises:
        """What holds at this moment."""
        return {
            tp: Promise(p, len(p.batches), p.high, p.deleted_below, p.start, p.unsure)
            for tp, p in self.partitions.items()
        }

    def log(self, tp: TopicPartition) -> PartitionLog | None:
        """The log of a partition; None where the disk does not let it be opened."""
        partition = self.partitions[tp]
        try:
            return self.directory.create(tp, partition.topic_id, partition.config)
        except OSError:
            self.refused += 1
            return None

    def is_offline(self, tp: TopicPartition) -> bool:
        """Whether a flush of the partition's log failed since the start."""
        log = next((log for log in self.directory.logs() if log.tp == tp), None)
        return tp in self.directory.offline() or (log is not None and log.offline)

    # Operations

    def create(self, tp: TopicPartition, topic_id: bytes, config: LogConfig) -> None:
        """A new partition; nothing is on the disk before its first batch."""
        self.partitions[tp] = Partition(topic_id, config, earlier_ids=frozenset(self.deleted_topic_ids))

    def append(self, tp: TopicPartition, producer: int, count: int, size_bytes: int, *, transactional: bool) -> None:
        """A client's batch; without a producer below 0."""
        partition, log = self.partitions[tp], self.log(tp)
        if log is None:
            return
        who = partition.topic_id, producer
        epoch = self._epochs.get(who, 0) if producer >= 0 else -1
        sequence = self._sequences.get((*who, epoch), 0) if producer >= 0 else -1
        text = f"{tp} {len(partition.batches)} ".encode()
        value = (text * (size_bytes // len(text) + 1))[:size_bytes]
        key = b"key %d" % (len(partition.batches) % KEYS)
        data = build_batch(
            [(self.now_ms, key, value, ())] * count,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        info = self._append(log, data)
        if self._took(partition, log, info.error, info.base_offset, info.last_offset, bytes(data)) and producer >= 0:
            self._sequences[(*who, epoch)] = sequence + count

    def _append(self, log: PartitionLog, data: bytearray) -> Ticket:
        """In turn as a small batch, as a large one that a thread has written before, and as one that lost its room."""
        self._appends += 1
        write = Write(log.tp, log, data, ErrorCode.NONE)
        if self.staging and self._appends % 3:
            staged = stage(log, write, 0, self.now_ms)
            if staged is not None:
                staged.sync()
                if self._appends % 3 == 1:
                    log.segments.unstage(staged)
        return log.append(data, AppendOrigin.CLIENT, self.now_ms, checked=write.checked)

    def mark(self, tp: TopicPartition, producer: int, *, commit: bool, version: int) -> None:
        """The end of a transaction; of version 2 with a new epoch."""
        partition, log = self.partitions[tp], self.log(tp)
        if log is None:
            return
        key = partition.topic_id, producer
        epoch = self._epochs.get(key, 0) + (version == 2)
        marker = end_txn_marker(producer, epoch, commit, 0, self.now_ms)
        info = log.append_marker(producer, epoch, commit, 0, version, self.now_ms)
        assign_offset(marker, 0, max(0, info.base_offset), log.leader_epoch)
        if self._took(partition, log, info.error, info.base_offset, info.last_offset, bytes(marker)):
            self._epochs[key] = epoch

    def _took(
        self, partition: Partition, log: PartitionLog, error: ErrorCode, base: int, last: int, data: bytes
    ) -> bool:
        if error:
            assert error is ErrorCode.KAFKA_STORAGE_ERROR, error
            self.refused += 1
            return False
        expected = partition.batches[-1].last_offset + 1 if partition.batches else 0
        assert base == expected, "offsets go on where they were"
        partition.batches.append(Kept(base, last, data))
        self._look(partition, log)
        return True

    def _look(self, partition: Partition, log: PartitionLog) -> None:
        assert log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        partition.high = max(partition.high, log.high_watermark)
        partition.start = max(partition.start, log.log_start_offset)

    def commit(self, tps: Iterable[TopicPartition]) -> None:
        """A round of group commit over these partitions. Raises ProcessEnds when a flush fails."""
        logs = [(tp, log) for tp in tps if (log := self.log(tp)) is not None]
        try:
            if self.durability == "os":
                self._relieve([log for _, log in logs])
            rounds = [(tp, log, *log.begin_sync(self.reserve)) for tp, log in logs]
            for _, _, _, sync_targets in rounds:
                for target in sync_targets:
                    target.sync()
        except OSError as error:
            raise ProcessEnds from error
        for tp, log, end_offset, _ in rounds:
            log.finish_sync(end_offset)
            self._look(self.partitions[tp], log)

    def _relieve(self, logs: list[PartitionLog]) -> None:
        """Before a flush the broker has some of what was written brought to the disk, with no promise."""
        for log in logs:
            size_bytes, sync_targets = log.begin_writeback(WRITEBACK_BYTES)
            for target in sync_targets:
                target.sync()
            log.finish_writeback(size_bytes)

    def delete_records(self, tp: TopicPartition, share: float) -> None:
        """DeleteRecords up to a place between the log's start and its high watermark."""
        partition, log = self.partitions[tp], self.log(tp)
        if log is None:
            return
        span = log.high_watermark - log.log_start_offset
        code, start = delete_records(log, log.log_start_offset + int(span * share))
        if code:
            assert code is ErrorCode.KAFKA_STORAGE_ERROR, code
            self.refused += 1
            partition.unsure = True
        else:
            partition.deleted_below = max(partition.deleted_below, start)
            partition.unsure = False
        self._look(partition, log)

    def housekeep(self, after_ms: int) -> None:
        """Retention and checkpoints, `after_ms` later. Raises ProcessEnds when a flush fails."""
        self.now_ms += after_ms
        self.disk.now_ms = self.now_ms
        try:
            trio.run(housekeep, self.directory, self.now_ms)
        except OSError as error:
            raise ProcessEnds from error
        self.look()
        self.do_chores()

    def do_chores(self) -> None:
        """What `Checkpointer` has its thread do every few seconds. Raises ProcessEnds when a flush fails."""
        for chore in self.directory.background_tasks():
            try:
                chore.sync()
            except FlushFailed as error:
                raise ProcessEnds from error
            except OSError:
                self.refused += 1

    def checkpoint(self, tp: TopicPartition) -> None:
        """A checkpoint within a segment, in the order of `Checkpointer`. Raises ProcessEnds when a flush fails."""
        log = self.log(tp)
        if log is None or log.offline:
            return
        try:
            sync_targets, offset = log.checkpoint(), log.log_end_offset
            if sync_targets is None:
                return  # the disk is full
            for target in sync_targets:
                target.sync()
            self.commit([tp])
            for file in self.directory.checkpoint_files([log]):
                file.sync()
            for removal in log.drop_passed_snapshots(offset):
                removal.sync()
        except FlushFailed as error:
            raise ProcessEnds from error
        except OSError:
            self.refused += 1

    def compact(self, tp: TopicPartition) -> None:
        """Compact what may be compacted, as the cleaner does. Raises ProcessEnds when a flush fails."""
        log = self.log(tp)
        if log is None or log.offline or tp in self._uncleanable:
            return
        assert isinstance(log.segments, Segments)
        cleaned_to, stable = self.directory.kept.cleaned_to.get(tp, 0), log.last_stable_offset
        try:
            if log.segments.active.size_bytes:
                log.roll(self.now_ms)
            span = cleanable_range(log.segments, log.config, cleaned_to, log.log_start_offset, stable, self.now_ms)
            cleaning = Cleaning(log, span, CleaningLimits(1 << 16), self.now_ms)
            drive(cleaning.run())
            self.directory.kept.note_cleaned(log.tp, cleaning.cleaned_to)
        except FlushFailed as error:
            raise ProcessEnds from error
        except OSError:
            self.refused += 1
            self._uncleanable.add(tp)

    def delete(self, tp: TopicPartition) -> None:
        """The topic is gone; if the disk refuses, the directory stays until somebody tries again."""
        self.deleted_topic_ids.add(self.partitions.pop(tp).topic_id)
        try:
            self.directory.delete(tp)
        except OSError:
            self.refused += 1

    def close(self) -> None:
        """A clean stop and a new start. Raises ProcessEnds when the stop failed half way."""
        try:
            self.directory.close()
        except OSError as error:
            raise ProcessEnds from error
        self.look()
        self.directory = self.open()

    def crash(self) -> None:
        """Kill -9 and a new start."""
        self.disk.before_io, before = None, self.disk.before_io
        faults, counted = self.disk.faults, self.disk.io_count
        self.disk = self.disk.kill()
        self.disk.before_io, self.disk.faults, self.disk.io_count = before, faults, counted
        self.disk.now_ms = self.now_ms
        self.directory = self.open()

    def look(self) -> None:
        """Take note of what the open logs say now."""
        for log in list(self.directory.logs()):
            partition = self.partitions.get(log.tp)
            if partition is not None:
                self._look(partition, log)
