"""The producer snapshots of one log: their offsets, writing and deleting them."""

import logging
import threading
from collections.abc import Collection, Iterator

from fencepost.broker.log.producer_entries import ProducerEntry
from fencepost.broker.log.recovery.snapshots import SNAPSHOT_SUFFIX, encode_snapshot, open_in_snapshot, snapshot_offsets
from fencepost.broker.log.storage.segment import file_name
from fencepost.broker.log.storage.store import CorruptLogFile, FlushFailed, Store, SyncTask

AT_ONCE_MAX = 1000
"""The most producers that are written inline, in some milliseconds; a hundred thousand take a third of a second."""

logger = logging.getLogger(__name__)


class _LateSnapshot:
    """A snapshot of many producers that another thread encodes and writes; the entries are immutable."""

    def __init__(self, store: Store, offset: int, entries: list[ProducerEntry]) -> None:
        self.offset = offset
        self.written = False
        self._store = store
        self._entries: list[ProducerEntry] | None = entries
        self._lock = threading.Lock()

    def sync(self) -> None:
        """Write it durably, unless it was cancelled. A full disk is not an error. Raises FlushFailed."""
        with self._lock:
            entries, self._entries = self._entries, None
            if entries is None:
                return
            name = file_name(self.offset, SNAPSHOT_SUFFIX)
            try:
                self._store.replacement(name, encode_snapshot(entries)).sync()
            except FlushFailed:
                raise
            except OSError as error:
                logger.warning("no producer snapshot %s/%s: %s", self._store.place, name, error.strerror)
            else:
                self.written = True

    def give_up(self) -> None:
        """Cancel it, because its log was disowned: a new log of the name must not find it. Waits for a write."""
        with self._lock:
            self._entries = None

    @property
    def over(self) -> bool:
        return self._entries is None and not self._lock.locked()


class SnapshotFiles:
    """The producer snapshots of one partition: one per segment, at its base offset, and the newest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known = snapshot_offsets(store.sizes())
        self._late: list[_LateSnapshot] = []

    @property
    def _offsets(self) -> list[int]:
        """The offsets of the existing snapshots, rising, including those that a thread wrote meanwhile."""
        for late in [late for late in self._late if late.over]:
            self._late.remove(late)
            if late.written:
                self._known = sorted({*self._known, late.offset})
        return self._known

    def write(self, offset: int, entries: Collection[ProducerEntry]) -> list[SyncTask]:
        """Write the state at `offset`. A full disk is not an error: recovery then replays from an older snapshot.

        If there are many entries, the returned task writes the snapshot when a thread syncs it; until then it does not
        exist.
        """
        if offset in self._offsets:
            return []
        waiting: list[SyncTask] = [late for late in self._late if late.offset == offset]
        if waiting:
            return waiting
        if len(entries) > AT_ONCE_MAX:
            self._late.append(_LateSnapshot(self._store, offset, list(entries)))
            return [self._late[-1]]
        name = file_name(offset, SNAPSHOT_SUFFIX)
        try:
            self._store.replace(name, encode_snapshot(entries))
        except OSError as error:
            logger.warning("no producer snapshot %s/%s: %s", self._store.place, name, error.strerror)
            return []
        self._known.append(offset)
        return []

    def give_up(self) -> None:
        """The log was disowned: write nothing more."""
        for late in self._late:
            late.give_up()

    def has(self, offset: int) -> bool:
        return offset in self._offsets

    def sync_targets(self, offset: int) -> list[SyncTask]:
        """The task that makes the snapshot at `offset` durable, if there is one. Raises OSError."""
        if offset not in self._offsets:
            return []
        file = self._store.open(file_name(offset, SNAPSHOT_SUFFIX))
        target = file.sync_target()
        file.close()
        return [] if target is None else [target]

    def keep_below(self, offset: int, wanted: Collection[int]) -> list[SyncTask]:
        """Delete the snapshots below `offset`, except at the offsets `wanted`. This and the next two raise OSError.

        They remove the names at once, and return tasks that delete the files when synced.
        """
        return self._drop([known for known in self._offsets if known < offset and known not in wanted])

    def remove_before(self, offset: int) -> list[SyncTask]:
        return self._drop([known for known in self._offsets[:-1] if known < offset])

    def remove_between(self, after: int, before: int) -> list[SyncTask]:
        return self._drop([known for known in self._offsets if after < known < before])

    def _drop(self, passed: Collection[int]) -> list[SyncTask]:
        self._known = [known for known in self._known if known not in passed]
        return self._store.removals([file_name(old, SNAPSHOT_SUFFIX) for old in passed])

    def open_at(self, offset: int) -> Iterator[list[int]]:
        """The producers with an open transaction in the snapshot at `offset`, in parts; none without a snapshot.

        Raises OSError. A damaged snapshot is ignored, as in recovery.
        """
        name = file_name(offset, SNAPSHOT_SUFFIX)
        data = self._store.load(name) if offset in self._offsets else None
        if data is None:
            return
        try:
            yield from open_in_snapshot(data, f"{self._store.place}/{name}")
        except CorruptLogFile as error:
            logger.warning("damaged producer snapshot ignored: %s", error)
