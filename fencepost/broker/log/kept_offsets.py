"""The offsets of each log in the checkpoint files of a data directory; entries of deleted logs are removed."""

import threading
from collections.abc import Callable, Collection, Mapping

from fencepost.broker.log.durability.checkpointing import ReplacedFile
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    LOG_STARTS_TWIN,
    RECOVERY_POINTS,
    encode_offsets,
    load_log_starts,
    load_offsets,
)
from fencepost.broker.log.storage.store import Store, SyncTask
from fencepost.protocol.topics import TopicPartition


class KeptOffsets:
    """Recovery points, log start offsets and the cleaner's offsets of the logs in one data directory.

    An entry without a log belongs to a deleted log. A start ignores it. It is removed from the disk before a new log
    gets the same name, because the new log must not be opened with it.
    """

    def __init__(self, store: Store, known: Collection[TopicPartition]) -> None:
        self._store = store
        self._recovery_file = ReplacedFile(store, RECOVERY_POINTS)
        self._watermark_file = ReplacedFile(store, HIGH_WATERMARKS)
        self.recovery_points = _of_logs(known, load_offsets(store, RECOVERY_POINTS))
        self.log_starts = _of_logs(known, load_log_starts(store))
        self.cleaned_to = _of_logs(known, load_offsets(store, CLEANER_OFFSETS))
        self._starts_file = ReplacedFile(store, LOG_STARTS)
        self._starts_twin = ReplacedFile(store, LOG_STARTS_TWIN)
        self._log_starts_filed = b""
        self._filed_number = self._made_number = 0
        self._lock = threading.Lock()
        self._outlived: set[TopicPartition] = set()

    def recovery_files(self, high_watermarks: Mapping[TopicPartition, int]) -> list[SyncTask]:
        """Tasks that write the recovery points and high watermarks when synced, from any thread."""
        return [
            self._recovery_file.holding(encode_offsets(self.recovery_points)),
            self._watermark_file.holding(encode_offsets(high_watermarks)),
        ]

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
        data = encode_offsets(self.log_starts)
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

    def note_cleaned(self, tp: TopicPartition, offset: int) -> None:
        """Store that a compaction reached `offset`. A crash may lose it: then more is compacted. Raises OSError."""
        self.cleaned_to[tp] = offset
        self._store.replace(CLEANER_OFFSETS, encode_offsets(self.cleaned_to))

    def forget(self, tp: TopicPartition) -> None:
        """Drop the offsets of a deleted log."""
        self.cleaned_to.pop(tp, None)
        if tp in self.log_starts or tp in self.recovery_points:
            self._outlived.add(tp)
            self.log_starts.pop(tp, None)
            self.recovery_points.pop(tp, None)

    def distrust(self, tp: TopicPartition) -> None:
        """The operator accepted the loss of durable data: durably drop the log's recovery point. Raises OSError."""
        self.cleaned_to.pop(tp, None)
        if self.recovery_points.pop(tp, None) is not None:
            self._recovery_file.holding(encode_offsets(self.recovery_points)).sync()

    def give_name(self, tp: TopicPartition, logs: Callable[[], Collection[PartitionLog]]) -> None:
        """Before a log is opened: remove the entries of a deleted log of its name from the disk. Raises OSError."""
        if tp in self._outlived:
            self._recovery_file.holding(encode_offsets(self.recovery_points)).sync()
            for file in self.log_start_files(logs()):
                file.sync()
            self._outlived.clear()


class _LogStarts:
    """Writes the file of log start offsets and its copy, one after the other."""

    def __init__(self, kept: KeptOffsets, number: int, data: bytes, files: list[SyncTask]) -> None:
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
