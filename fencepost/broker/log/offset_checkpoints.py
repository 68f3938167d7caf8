"""The offsets of each log in the checkpoint files of a data directory. Each names the topic id that it belongs to."""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from fencepost.broker.log.durability.checkpointing import ReplacedFile
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.recovery.opening import ALL_TRUSTED, need_durable, need_start
from fencepost.broker.log.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    LOG_STARTS_TWIN,
    NO_TOPIC_ID,
    RECOVERY_POINTS,
    encode_offsets,
    is_exact,
    load_log_start_owners,
    load_log_starts,
    load_offsets,
    load_owners,
)
from fencepost.broker.log.storage.store import CorruptLogFile, Store, SyncTask
from fencepost.protocol.topics import TopicPartition

ALL_DIRTY = -1
"""The cleaner's offset of a log that was compacted, but must be compacted again from its beginning."""


class Bounds(NamedTuple):
    """What the checkpoint files say about one log."""

    log_start_offset: int
    recovery_point: int
    trusted_offset: int
    """The batches below it need no check."""
    exact_start: bool
    """Whether the segment of the log start must exist."""

    def check(self, store: Store, first_offset: int, end_offset: int) -> None:
        """Raises CorruptLogFile if the first or the last segments of a log with these bounds are missing."""
        if self.recovery_point and not store.sizes():
            why = f"its directory is missing or empty, but everything below offset {self.recovery_point} was durable"
            raise CorruptLogFile(store.place, 0, why)
        need_durable(store, end_offset, self.recovery_point)
        if self.exact_start:
            need_start(store, first_offset, self.log_start_offset)


class OffsetCheckpoints:
    """Recovery points, log start offsets and the cleaner's offsets of the logs in one data directory.

    An entry without a log belongs to a deleted log. A start ignores it. It is removed from the disk before a new log
    gets the same name, because the new log must not be opened with it. If it was not, the topic id shows that it is
    another topic's. Kafka and earlier versions write no topic ids, and the latter left cleaner's offsets of deleted
    topics: without a topic id such an offset counts as ALL_DIRTY.
    """

    def __init__(self, store: Store, known: Collection[TopicPartition]) -> None:
        """`known` are the logs on disk that are not open: the caller takes out each that it opens."""
        self._store = store
        self._unopened = known
        self._recovery_file = ReplacedFile(store, RECOVERY_POINTS)
        self._watermark_file = ReplacedFile(store, HIGH_WATERMARKS)
        recovery_points = load_offsets(store, RECOVERY_POINTS) or {}
        self.recovery_points = _of_logs(known, recovery_points)
        exact = is_exact(store.load(RECOVERY_POINTS))
        self.without_log = {tp for tp, offset in recovery_points.items() if exact and offset > 0 and tp not in known}
        """Partitions that have a recovery point and no log: the log is lost, unless the topic was deleted."""
        self._lost_points = {tp: recovery_points[tp] for tp in self.without_log}
        self.log_starts = _of_logs(known, load_log_starts(store))
        self._owners = {name: load_owners(store, name) for name in (RECOVERY_POINTS, CLEANER_OFFSETS)}
        self._owners[LOG_STARTS] = load_log_start_owners(store)
        """The topic ids in the files, by partition; of logs that were opened, those of the logs."""
        cleaned_to = _of_logs(known, load_offsets(store, CLEANER_OFFSETS))
        owned = self._owners[CLEANER_OFFSETS]
        self.cleaned_to = {tp: offset if tp in owned else ALL_DIRTY for tp, offset in cleaned_to.items()}
        self._starts_file = ReplacedFile(store, LOG_STARTS)
        self._starts_twin = ReplacedFile(store, LOG_STARTS_TWIN)
        self.exact_starts = not known or all(is_exact(store.load(name)) for name in (LOG_STARTS, LOG_STARTS_TWIN))
        """Whether a log without the segment that holds its log start has lost it."""
        self._log_starts_filed = b""
        self._filed_number = self._made_number = 0
        self._lock = threading.Lock()
        self._stale: set[TopicPartition] = set()

    def claim(self, tp: TopicPartition, topic_id: bytes) -> None:
        """A log of this topic is opened: drop the entries of other topics of its name. An unknown id fits all."""
        for name, offsets in self._files():
            owner = self._owners[name].get(tp, topic_id)
            if owner != topic_id and NO_TOPIC_ID not in (owner, topic_id):
                offsets.pop(tp, None)
            self._owners[name][tp] = topic_id

    def _files(self) -> list[tuple[str, dict[TopicPartition, int]]]:
        return [
            (RECOVERY_POINTS, self.recovery_points),
            (LOG_STARTS, self.log_starts),
            (CLEANER_OFFSETS, self.cleaned_to),
        ]

    def _encoded(self, name: str, offsets: Mapping[TopicPartition, int], *, exact: bool = False) -> bytes:
        owners = self._owners[name]
        return encode_offsets(offsets, {tp: owners[tp] for tp in offsets if tp in owners}, exact=exact)

    def bounds(self, tp: TopicPartition, clean: bool) -> Bounds:
        """The bounds of a log that is opened; `clean`: all its batches need no check."""
        start, durable = self.log_starts.get(tp, 0), self.recovery_points.get(tp, 0)
        exact = self.exact_starts and tp in self._unopened
        return Bounds(start, durable, ALL_TRUSTED if clean else durable, exact)

    def recovery_files(self, high_watermarks: Mapping[TopicPartition, int]) -> list[SyncTask]:
        return [self._recovery_points_file(), self._watermark_file.holding(encode_offsets(high_watermarks))]

    def log_start_files(self, logs: Collection[PartitionLog]) -> list[SyncTask]:
        """Tasks that write the log start offsets, with the current ones of `logs`, when synced, from any thread.

        None if the durable file has the same content.
        """
        for log in logs:
            # Also if the first segment begins there: until the directory is synced, deleted segments can come back.
            if log.log_start_offset > 0:
                self.log_starts[log.tp] = log.log_start_offset
            else:
                self.log_starts.pop(log.tp, None)
        # Earlier versions and Kafka deleted segments before they wrote this file: each log must be opened once.
        self.exact_starts = self.exact_starts or not self._unopened
        data = self._encoded(LOG_STARTS, self.log_starts, exact=self.exact_starts)
        if data == self._log_starts_filed:
            return []
        self._made_number += 1
        return [
            _LogStarts(
                self, self._made_number, data, [self._starts_twin.holding(data), self._starts_file.holding(data)]
            )
        ]

    def log_starts_filed(self, number: int, data: bytes) -> None:
        """Record that the files durably hold this content, or a newer one; callable from any thread."""
        with self._lock:
            if number > self._filed_number:
                self._filed_number = number
                self._log_starts_filed = data

    def doubt_log_starts(self) -> None:
        """Let segments be deleted although the file cannot be written: the file is no longer exact. Raises OSError.

        It only removes the copy, for which a full disk has room.
        """
        self._log_starts_filed = b""
        self._store.remove(LOG_STARTS_TWIN)
        for target in self._store.entry_targets():
            target.sync()

    def note_cleaned(self, tp: TopicPartition, offset: int) -> None:
        """Store that a compaction reached `offset`. A crash may lose it: then more is compacted. Raises OSError."""
        self.cleaned_to[tp] = offset
        self._store.replace(CLEANER_OFFSETS, self._encoded(CLEANER_OFFSETS, self.cleaned_to))

    def forget(self, tp: TopicPartition) -> None:
        self.cleaned_to.pop(tp, None)
        for owners in self._owners.values():
            owners.pop(tp, None)
        if tp in self.log_starts or tp in self.recovery_points:
            self._stale.add(tp)
            self.log_starts.pop(tp, None)
            self.recovery_points.pop(tp, None)

    def adopt(self, tp: TopicPartition, topic_id: bytes, rows: Mapping[str, int]) -> list[SyncTask]:
        """A log comes from another directory, with its offsets there by the names of the files.

        Returns tasks that write them when synced, before the log is opened. Raises OSError.
        """
        self._stale.discard(tp)
        self.without_log.discard(tp)
        for name, offsets in self._files():
            self._owners[name][tp] = topic_id
            offsets.pop(tp, None)
            if name in rows:
                offsets[tp] = rows[name]
        self._log_starts_filed = b""
        if tp in self.cleaned_to:  # here, and in no thread: the cleaner writes the same file
            self._store.replace(CLEANER_OFFSETS, self._encoded(CLEANER_OFFSETS, self.cleaned_to), durable=True)
        return [self._recovery_points_file(), *self.log_start_files(())]

    def distrust(self, tp: TopicPartition) -> None:
        """The operator accepted the loss of durable data: durably drop the log's recovery point. Raises OSError."""
        self.cleaned_to.pop(tp, None)
        if self.recovery_points.pop(tp, None) is not None:
            self._recovery_points_file().sync()

    def expect(self, tp: TopicPartition) -> None:
        """The partition still exists: its log, which has a recovery point, is lost."""
        self.without_log.discard(tp)
        self.recovery_points[tp] = self._lost_points[tp]

    def purge(self) -> None:
        """Durably drop the recovery points of deleted logs: a new topic may get their name. Raises OSError."""
        if self._stale or self.without_log:
            self._recovery_points_file().sync()
            self.without_log.clear()

    def _recovery_points_file(self) -> SyncTask:
        return self._recovery_file.holding(self._encoded(RECOVERY_POINTS, self.recovery_points, exact=True))

    def forget_stale_entries(self, tp: TopicPartition, logs: Callable[[], Collection[PartitionLog]]) -> None:
        """Before a log is opened: remove the entries of a deleted log of its name from the disk. Raises OSError."""
        if tp in self._stale:
            self._recovery_points_file().sync()
            for file in self.log_start_files(logs()):
                file.sync()
            self._stale.clear()


class _LogStarts:
    """Writes the file of log start offsets and its copy, one after the other."""

    def __init__(self, kept: OffsetCheckpoints, number: int, data: bytes, files: list[SyncTask]) -> None:
        self._kept = kept
        self._number = number
        self._data = data
        self._files = files

    def sync(self) -> None:
        for file in self._files:
            file.sync()
        self._kept.log_starts_filed(self._number, self._data)


def _of_logs(
    known: Collection[TopicPartition], offsets: Mapping[TopicPartition, int] | None
) -> dict[TopicPartition, int]:
    return {tp: offset for tp, offset in (offsets or {}).items() if tp in known}
