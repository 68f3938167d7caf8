"""The logs of a cluster as a `LogStore`: loaded when this broker gets their slots, cached in a scratch directory."""

import errno
from collections.abc import Callable, Collection, Mapping

from fencepost.broker.cluster.commit.dropping import raise_starts
from fencepost.broker.cluster.commit.rounds import Rounds
from fencepost.broker.cluster.commit.shared_log import ColdRows, SharedLog
from fencepost.broker.cluster.commit.writer import Stopped
from fencepost.broker.cluster.engine import Changed, Fenced, NewLog, Replacement, Snapshot, log_id, slot_of
from fencepost.broker.cluster.reading.loading import LoadedLog
from fencepost.broker.cluster.reading.row_index import RowIndex
from fencepost.broker.cluster.reading.stamping import keep, stamped
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.epochs import LeaderEpochs
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    LOG_STARTS,
    LOG_STARTS_TWIN,
    PARTITION_METADATA,
    encode_offsets,
    encode_partition_metadata,
)
from fencepost.broker.log.storage.layout import partition_of
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.segment import Segment
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import Store, SyncTask
from fencepost.broker.metadata.log import METADATA_PARTITION
from fencepost.protocol.topics import TopicPartition

METADATA_NAME = str(METADATA_PARTITION)
"""The log that every broker has open."""


class OpenedShared:
    """An `OpenedLog`."""

    def __init__(self, segments: SharedLog, producers: ProducerStates, epochs: LeaderEpochs) -> None:
        self.segments = segments
        self.producers = producers
        self.epochs = epochs


class SharedLogs:
    """The `LogStore` of a cluster's broker.

    `small_files` holds what files keep beside logs: topic ids, leader epochs. It is built from the database at each
    load, so it need not outlive the process.
    """

    def __init__(
        self,
        place: str,
        loaded: Collection[LoadedLog],
        rounds: Rounds,
        cold: ColdRows,
        scratch: Store,
        leader_epoch: Callable[[int], int],
        leads: Callable[[int], bool] = lambda log_id: True,
    ) -> None:
        """`leader_epoch` returns the epoch of a log's slot, `leads` whether this broker leads the log. The logs of
        deleted topics may share names with others.
        """
        self.small_files = MemoryStore(place)
        self._rounds = rounds
        self._cold = cold
        self._scratch = scratch
        self._leader_epoch = leader_epoch
        self._loaded: dict[str, list[LoadedLog]] = {}
        self._ids: dict[str, int] = {}
        """The ids of logs that were opened, by name."""
        self._starts: dict[int, int] = {}
        self._leads = leads
        self._given_up = 0
        offsets = encode_offsets(self.add(loaded))
        for file in (LOG_STARTS, LOG_STARTS_TWIN):
            self.small_files.replace(file, offsets)
        self.small_files.replace(CLEAN_SHUTDOWN, b"")

    def add(self, loaded: Collection[LoadedLog]) -> dict[TopicPartition, int]:
        """These logs are here from now on. Returns their partitions, with the offsets at which they begin."""
        for log in loaded:
            self._loaded.setdefault(log.head.name, []).append(log)
            self._starts[log.head.log] = log.head.start
        for name in {log.head.name for log in loaded}:
            newest = self._loaded[name][-1]
            self.files(name).replace(PARTITION_METADATA, encode_partition_metadata(newest.head.topic_id))
            for file_name, data in newest.files.items():
                self.files(name).replace(file_name, data)
            self._ids.setdefault(name, newest.head.log)
        starts = {partition_of(log.head.name): log.start for log in loaded}
        return {tp: start for tp, start in starts.items() if tp is not None}

    def give_up(self, slot: int) -> tuple[list[str], list[SyncTask]]:
        """Forget the logs of a slot that another broker leads from now on. Returns the names of those that were open,
        or would have been opened, and the tasks that delete what is cached of them.
        """
        for name, same_name in list(self._loaded.items()):
            kept = self._loaded[name] = [log for log in same_name if slot_of(log.head.log) != slot]
            if not kept:
                del self._loaded[name]
        names = [name for name, number in self._ids.items() if slot_of(number) == slot and name != METADATA_NAME]
        removals: list[SyncTask] = []
        for name in names:
            self._starts.pop(self._ids.pop(name), None)
            self._given_up += 1
            self.small_files.discard_child(name, f"{name}.{self._given_up}")
            removals += self._scratch.discard_child(name, f"{name}.{self._given_up}")
        return names, removals

    @property
    def place(self) -> str:
        return self.small_files.place

    def names(self) -> list[str]:
        return list(self._ids)

    def files(self, name: str) -> Store:
        return self.small_files.child(name)

    def open(
        self, name: str, config: LogConfig, log_start_offset: int, trusted_offset: int, topic_id: bytes = b""
    ) -> OpenedShared:
        """Open a log that was loaded, or create it."""
        tp = partition_of(name)
        assert tp is not None, f"{name} is no partition"
        number = log_id(topic_id, tp.partition)
        found = self._take(name, number)
        self._ids[name] = number
        log = SharedLog(
            number,
            index_of(found),
            tail_of(found, self._scratch.child(name)),
            self._rounds,
            self._cold,
            None if found is not None else NewLog(name, topic_id),
        )
        log.cleaned_to = found.cleaned_to if found is not None else 0
        return opened_of(log, found, self.files(name), self._leader_epoch(number))

    def _take(self, name: str, number: int) -> LoadedLog | None:
        """The loaded log of this id; its memory is freed with the caller's reference."""
        same_name = self._loaded.get(name, [])
        found = next((log for log in same_name if log.head.log == number), None)
        if found is not None:
            same_name.remove(found)
        return found

    def start_targets(self, starts: Mapping[str, int]) -> list[SyncTask]:
        """The task that makes the start offsets of logs durable."""
        numbers = {self._ids[name]: start for name, start in starts.items() if name in self._ids}
        fresh = [(number, start) for number, start in numbers.items() if start > self._starts.get(number, 0)]
        return [_Starts(self._rounds, self._starts, fresh, self._leads)] if fresh else []

    def keep_file(self, name: str, kind: str, offset: int, file_name: str, data: bytes) -> SyncTask:
        """The task that stores a file beside the log `name` in the database, in place of an older one of this kind."""
        value = file_name.encode() + b"\n" + data
        return _File(self._rounds, Snapshot(self._ids[name], offset, kind, value))

    def rename(self, name: str, to: str) -> None:
        """Forget the log of a deleted topic: the new topic's log has another id."""
        self._ids.pop(name, None)
        self.small_files.rename_child(name, to)

    def delete(self, name: str, via: str) -> list[SyncTask]:
        """Returns the task that deletes a log, and all others of its name, which belonged to deleted topics."""
        numbers = {log.head.log for log in self._loaded.pop(name, [])}
        number = self._ids.pop(name, None)
        self.small_files.discard_child(name, via)
        wanted = numbers if number is None else numbers | {number}
        return [_Drop(self._rounds, wanted)] if wanted else []


def index_of(found: LoadedLog | None) -> RowIndex:
    return RowIndex(0) if found is None else RowIndex(found.start, found.rows, found.aborted, found.folded_to)


def tail_of(found: LoadedLog | None, scratch: Store) -> Segments:
    """The tail of a loaded log, in an empty directory: it holds the content that was loaded. Raises CorruptLogFile."""
    content, end = (found.content, found.head.next) if found is not None else ([], 0)
    tail = Segments(scratch, [Segment(scratch, content[0].row.base if content else end)])
    for row, data in content:
        for batch, header in stamped(row, data):
            keep(tail, batch, header)
        tail.skip_to(row.end)
    return tail


def opened_of(log: SharedLog, found: LoadedLog | None, files: Store, leader_epoch: int) -> OpenedShared:
    """A loaded log, open in this epoch, with its producers."""
    epochs = LeaderEpochs(files, [])
    for epoch, first_offset in found.epochs if found is not None else ():
        epochs.note(epoch, first_offset)
    epochs.note(leader_epoch, log.end_offset)
    return OpenedShared(log, found.producers if found is not None else ProducerStates(), epochs)


class _Starts:
    """Raises the start offsets of logs in the database."""

    def __init__(
        self, rounds: Rounds, stored: dict[int, int], starts: list[tuple[int, int]], leads: Callable[[int], bool]
    ) -> None:
        self._rounds = rounds
        self._stored = stored
        self._starts = starts
        self._leads = leads

    def sync(self) -> None:
        starts = [(log, start) for log, start in self._starts if self._leads(log)]
        try:
            raise_starts(self._rounds.engine, self._rounds.writer, starts)
        except (Fenced, Stopped, Changed) as error:
            raise OSError(errno.EROFS, str(error)) from error
        self._stored.update((log, start) for log, start in starts if self._leads(log))


class _File:
    """Stores a snapshot: a replacement of no rows."""

    def __init__(self, rounds: Rounds, snapshot: Snapshot) -> None:
        self._rounds = rounds
        self._snapshot = snapshot

    def sync(self) -> None:
        log = self._snapshot.log
        replacement = Replacement(log, 0, 0, (), (), (), [self._snapshot])
        self._rounds.change(lambda identity: self._rounds.writer.engine.replace(identity, replacement))


class _Drop:
    """Deletes logs from the database."""

    def __init__(self, rounds: Rounds, logs: Collection[int]) -> None:
        self._rounds = rounds
        self._logs = logs

    def sync(self) -> None:
        self._rounds.change(lambda identity: self._rounds.writer.engine.drop(identity, self._logs))
