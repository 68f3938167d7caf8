"""The data directory: one log per partition, opened on first use, and Kafka's checkpoint files."""

import logging
import os
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.deletions import BackgroundTasks, is_full_disk
from fencepost.broker.log.durability.flusher import Durability
from fencepost.broker.log.durability.sync_threads import FlushThreads
from fencepost.broker.log.durability.upkeep import Steps, at_once, in_threads, sync_all
from fencepost.broker.log.log_store import LogStore
from fencepost.broker.log.offline_logs import OfflineLogs
from fencepost.broker.log.offset_checkpoints import OffsetCheckpoints
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.recovery.log_files import LogFiles
from fencepost.broker.log.recovery.opening import ALL_TRUSTED
from fencepost.broker.log.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    NO_TOPIC_ID,
    load_topic_id,
    other_topic_id,
    topic_id_text,
)
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.layout import (
    ACCEPT_LOSS,
    DELETED,
    STRAY,
    copy_to_quarantine,
    last_quarantine,
    long_name,
    may_be_partition,
    partition_of,
)
from fencepost.broker.log.storage.lock import DirectoryInUse, check_lock, lock_directory
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.segment import LOG_SUFFIX
from fencepost.broker.log.storage.segment_store import SegmentStore
from fencepost.broker.log.storage.store import CorruptLogFile, Store, SyncTask
from fencepost.broker.log.upkeep_failures import UpkeepFailures
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)

__all__ = ["DirectoryInUse", "LogManager"]


class LogManager:
    """Every partition log of this broker.

    A log on disk is opened, and recovered after an unclean shutdown, by `open_in_thread` or on its first use.
    """

    def __init__(
        self,
        store: Store,
        durability: Durability,
        default_config: Callable[[str], LogConfig],
        lock_fd: int | None,
        log_store: LogStore | None = None,
    ) -> None:
        self.store = store
        self._log_store: LogStore = log_store or SegmentStore(store)
        self._durability = durability
        self._default_config = default_config
        self._lock_fd = lock_fd
        self._in_memory = lock_fd is None
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._unopened: set[TopicPartition] = set()
        self._reading: set[TopicPartition] = set()
        """Of the unopened logs those that a thread is reading."""
        self._offline = OfflineLogs()
        self.deleted_topic_ids: Container[bytes] = frozenset()
        """The ids of deleted topics in the metadata: only logs of these topics are ever renamed or deleted."""
        for name in self._log_store.names():
            tp = partition_of(name)
            if tp is not None:
                self._unopened.add(tp)
            elif name.endswith(DELETED):
                sync_all(self._log_store.delete(name, name))
        self.clean = store.load(CLEAN_SHUTDOWN) is not None
        """Whether the last shutdown was clean."""
        self.lose: Callable[[PartitionLog, OSError], None] | None = None
        """Called with a log whose flush failed in `housekeep`; without it the failure is raised."""
        self.upkeep = UpkeepFailures()
        self._deletions = 0
        self._background_tasks = BackgroundTasks()
        self.kept = OffsetCheckpoints(store, self._unopened)
        if self.clean:
            store.remove(CLEAN_SHUTDOWN)
        # Always: an earlier start may have removed the clean-shutdown file and crashed before that was durable. If the
        # file came back after a power cut, recovery would trust a torn end.
        sync_all(store.entry_targets())
        if self._unopened and not self.clean:
            logger.info("%s had an unclean shutdown: each partition is checked when it is opened", store.place)

    @classmethod
    def open(
        cls,
        path: str | Path | None,
        *,
        durability: Durability = "fsync",
        default_config: Callable[[str], LogConfig] | None = None,
    ) -> "LogManager":
        """Open the data directory at `path`, and create it if it is missing; None keeps everything in memory.

        `default_config` returns a topic's settings for logs opened without any. Raises DirectoryInUse and OSError.
        """
        config = default_config or (lambda topic: LogConfig())
        if path is None:
            return cls(MemoryStore(), durability, config, None)
        store = FileStore(Path(path))
        store.make()
        lock_fd = lock_directory(store.path)
        try:
            return cls(store, durability, config, lock_fd)
        except BaseException:
            os.close(lock_fd)
            raise

    @classmethod
    def over(
        cls,
        store: Store,
        durability: Durability = "fsync",
        default_config: Callable[[str], LogConfig] | None = None,
        log_store: LogStore | None = None,
    ) -> "LogManager":
        """A directory over the caller's store, without a lock; also the logs of a `log_store` that is no directory."""
        directory = cls(store, durability, default_config or (lambda topic: LogConfig()), None, log_store)
        directory._in_memory = False
        return directory

    @property
    def place(self) -> str:
        """The directory's name for messages."""
        return self.store.place

    def check_place(self) -> None:
        """Raise FlushFailed if the data directory was deleted or replaced."""
        if self._lock_fd is not None:
            check_lock(Path(self.place), self._lock_fd)

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The log of a partition, opened if it is on disk; None if there is none, or a thread is opening it.

        Raises CorruptLogFile and OSError if it cannot be opened.
        """
        log = self._logs.get(tp)
        if log is None and tp in self._unopened and tp not in self._reading:
            return self._open(tp, None, self._default_config(tp.topic))
        return log

    async def open_in_thread(self, tp: TopicPartition, topic_id: bytes, threads: FlushThreads) -> None:
        """Open a log that is on disk; `threads` read it, and until then `get` returns None. Raises as `create`."""
        with self._offline.opening(tp):
            self._quarantine_stray(tp, topic_id)
            if tp in self._unopened:
                self._reading.add(tp)
                try:
                    log = await in_threads(self._recovering(tp, topic_id, self._default_config(tp.topic)), threads)
                    log.config = self._default_config(tp.topic)  # it may have changed meanwhile
                finally:
                    self._reading.discard(tp)

    def opened(self, tp: TopicPartition) -> PartitionLog | None:
        return self._logs.get(tp)

    def create(
        self, tp: TopicPartition, topic_id: bytes, config: LogConfig, *, only_topic: bool = False
    ) -> PartitionLog:
        """The log of a partition, from the disk or new; the first append creates the files.

        `only_topic`: no other topic ever had this name, so the topic id on disk is not checked. If the log on disk
        belongs to a deleted topic of the same name, it is renamed. Raises ValueError for a name that cannot be a
        directory, and the errors of `get`.
        """
        log = self._logs.get(tp)
        if log is not None:
            return log
        if not may_be_partition(tp):
            raise ValueError(f"{tp!s} cannot be a partition's name")
        return self._open(tp, topic_id, config, only_topic)

    def delete(self, tp: TopicPartition) -> None:
        """Delete a partition's log; no error if there is none. `background_tasks` remove its files. Raises OSError."""
        log = self._logs.pop(tp, None)
        if log is not None:
            log.disown(f"{tp} was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._unopened.discard(tp)
        self._offline.discard(tp)
        self.kept.forget(tp)
        identity = (log.topic_id if log is not None else NO_TOPIC_ID).hex()
        self._deletions += 1
        try:
            removals = self._log_store.delete(str(tp), long_name(tp, f".{identity}.{self._deletions}{DELETED}"))
            self._background_tasks.add(removals, self._default_config(tp.topic).file_delete_delay_ms)
        except OSError:
            if str(tp) in self._log_store.names():
                self._unopened.add(tp)  # the rest belongs to the deleted topic: a new one must not open it
            raise

    def release(self, tp: TopicPartition, why: str) -> None:
        """Close a log that this broker no longer leads; it is opened again if the broker leads it again."""
        log = self._logs.pop(tp, None)
        if log is not None:
            log.disown(why)
        self._unopened.discard(tp)
        self._unopened |= {tp} if str(tp) in self._log_store.names() else set()

    def add(self, starts: Mapping[TopicPartition, int]) -> None:
        """The log store has these logs from now on, which begin at these offsets."""
        self._unopened |= starts.keys() - self._logs.keys()
        self.kept.log_starts.update(starts)

    def partitions(self) -> Collection[TopicPartition]:
        return self._logs.keys() | self._unopened

    def size_bytes(self, tp: TopicPartition) -> int:
        """The size of a partition's segments in bytes, without opening the log; 0 if there is none. Raises OSError."""
        log = self._logs.get(tp)
        if log is not None:
            return log.segments.size_bytes
        sizes = self.files(tp).sizes() if tp in self._unopened else {}
        return sum(size for name, size in sizes.items() if name.endswith(LOG_SUFFIX))

    def expect(self, exists: Callable[[TopicPartition], bool]) -> list[TopicPartition]:
        """Note those as lost that exist, and have a recovery point and no directory; `kept.purge` drops the rest."""
        for tp in (lost := sorted(filter(exists, self.kept.without_log))):
            self.note_lost(tp)
        return lost

    def note_lost(self, tp: TopicPartition) -> None:
        """The log of a partition is gone: to open one raises CorruptLogFile, after the next start, too."""
        self.kept.note_lost(tp)
        self._unopened.add(tp)

    def offline(self) -> Collection[TopicPartition]:
        """The partitions whose durable files are damaged: they are not opened before the next start."""
        return self._offline.partitions()

    def topic_id_on_disk(self, tp: TopicPartition) -> bytes:
        """The topic id in a partition's directory; zeros if it is missing or damaged. Raises OSError."""
        try:
            return load_topic_id(self.files(tp))
        except CorruptLogFile as error:
            logger.warning("cannot read the topic id of this log: %s", error)
            return NO_TOPIC_ID

    def files(self, tp: TopicPartition) -> Store:
        return self._log_store.files(str(tp))

    def quarantine(self, tp: TopicPartition) -> str:
        """Copy a damaged log, and mark it for truncation at its first bad batch when it is opened next.

        Returns the name of the copy, which is durable. Raises OSError.
        """
        log = self._logs.pop(tp, None)
        if log is not None:
            log.segments.close()
        self._unopened.add(tp)
        self._offline.discard(tp)
        aside = copy_to_quarantine(self.store, str(tp))
        self.store.child(str(tp)).replace(ACCEPT_LOSS, b"", durable=True)
        return aside

    def quarantined(self, tp: TopicPartition) -> int:
        """The number of the last copy of a log by `quarantine` that still exists; 0 for none."""
        return last_quarantine(self.store, str(tp))

    def logs(self) -> Collection[PartitionLog]:
        return self._logs.values()

    def background_tasks(self, seconds: float | None = None) -> list[SyncTask]:
        """The tasks for a background thread: freeing deleted files, large producer snapshots. Each is returned once.

        A deletion is due after file.delete.delay.ms, by the monotonic `seconds`; at once if they are None. The next
        start repeats what was not done.
        """
        return self._background_tasks.due(seconds)

    def make_room(self, error: Exception) -> None:
        """After a failed write on a full disk, the next `background_tasks` free deleted files without a delay."""
        if is_full_disk(error):
            self._background_tasks.make_room()

    def write_checkpoints(self) -> None:
        """Write recovery points, log start offsets and high watermarks to Kafka's checkpoint files. Raises OSError."""
        sync_all([*self.checkpoint_files(self._logs.values()), *self.log_start_files()])

    def checkpoint_files(self, logs: Iterable[PartitionLog]) -> list[SyncTask]:
        """Tasks that write the recovery points of `logs` and all high watermarks when synced, from any thread."""
        if self._in_memory:
            return []
        for log in logs:
            if log.log_end_offset and log.writable:
                self.kept.recovery_points[log.tp] = log.recovery_point
        high_watermarks = {tp: log.high_watermark for tp, log in self._logs.items() if log.log_end_offset}
        return self.kept.recovery_files(high_watermarks)

    def log_start_files(self) -> list[SyncTask]:
        """Tasks that write the current log start offsets when synced, from any thread."""
        if self._in_memory:
            return []
        starts = {str(log.tp): log.log_start_offset for log in self._logs.values() if log.log_start_offset}
        return [*self.kept.log_start_files(self._logs.values()), *self._log_store.start_targets(starts)]

    def close(self) -> None:
        """Make snapshots, indexes and data durable, then write the clean-shutdown file. Raises OSError."""
        try:
            for log in self._logs.values():
                log.close()
            sync_all(self.background_tasks())
            self.write_checkpoints()
            if (self.clean or not self._unopened) and not any(log.offline for log in self._logs.values()):
                self.store.replace(CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}', durable=True)
            # After an unclean shutdown, partitions that were never opened are still unchecked: without the file they
            # are checked after the next start. For the logs closed now their recovery point makes that free.
        finally:
            if self._lock_fd is not None:
                os.close(self._lock_fd)
                self._lock_fd = None

    def _open(
        self, tp: TopicPartition, topic_id: bytes | None, config: LogConfig, only_topic: bool = False
    ) -> PartitionLog:
        """Open a log. A damaged one is reported once, and not read again before the next start."""
        assert tp not in self._reading, f"a thread is opening {tp}"
        with self._offline.opening(tp):
            if topic_id is None:
                topic_id = load_topic_id(self.files(tp))
            elif tp in self._unopened and not only_topic:
                self._quarantine_stray(tp, topic_id)
            return at_once(self._recovering(tp, topic_id, config))

    def _recovering(self, tp: TopicPartition, topic_id: bytes, config: LogConfig) -> Steps[PartitionLog]:
        store = self.files(tp)
        on_disk, kept = tp in self._unopened, self.kept
        kept.forget_stale_entries(tp, self._logs.values)
        kept.claim(tp, topic_id)
        loss_accepted = on_disk and store.load(ACCEPT_LOSS) is not None
        # A log that was compacted once keeps its gaps under another policy.
        gaps = config.cleanup_policy | {"compact"} if kept.cleaned_to.get(tp) else config.cleanup_policy
        if loss_accepted:
            kept.distrust(tp)
        bounds = kept.bounds(tp, self.clean and not loss_accepted)
        files = LogFiles(self._log_store, tp, topic_id, replace(config, cleanup_policy=gaps), bounds)
        files.check_bounds = not loss_accepted
        files.rewrite_tail, files.durable = on_disk and not self.clean, self._durability == "fsync"
        yield [files]
        opened, recovery_point = files.opened()
        log = PartitionLog(
            tp,
            topic_id,
            config,
            store,
            opened,
            log_start_offset=min(bounds.log_start_offset, opened.segments.end_offset),
            recovery_point=ALL_TRUSTED if self.clean else recovery_point,
            durable_at_once=self._in_memory or self._durability == "os",
            log_start_files=self.log_start_files,
            later=None
            if self._in_memory
            else lambda tasks: self._background_tasks.add(tasks, log.config.file_delete_delay_ms),
            write_failed=self.make_room,
        )
        if on_disk and tp not in self._unopened:  # a thread opened it, and meanwhile its topic was deleted
            log.segments.close()
            return log
        self._logs[tp] = log
        self._unopened.discard(tp)
        if loss_accepted:
            logger.warning(
                "%s now has the offsets from %d to below %d: the records before and after them are lost, as accepted",
                tp,
                log.log_start_offset,
                log.log_end_offset,
            )
            sync_all(self.log_start_files())  # otherwise the next start would ask again
            store.remove(ACCEPT_LOSS)
        return log

    def _quarantine_stray(self, tp: TopicPartition, topic_id: bytes) -> None:
        """Rename the log of a deleted topic, so that the new topic of its name gets an empty one.

        Raises CorruptLogFile if the log's topic was not deleted: a damaged file must not empty a partition.
        """
        store = self.files(tp)
        found = other_topic_id(store, topic_id, self.deleted_topic_ids)
        if found is None:
            return
        aside = long_name(tp, f".{found.hex()}{STRAY}")
        logger.warning("%s belongs to the deleted topic %s: renamed to %s", store.place, topic_id_text(found), aside)
        self._log_store.rename(str(tp), aside)
        self._unopened.discard(tp)
        self.kept.forget(tp)
