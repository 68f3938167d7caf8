"""Puts the directory of each partition where its leader is, with its rows of the checkpoint files.

No broker runs meanwhile. A step that was interrupted is repeated by doing all again: a partition is where its directory
is now, and its rows are in that directory from before the move until after it.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from fencepost.broker.log.storage.checkpoints import (
    CLEAN_SHUTDOWN,
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
    load_topic_id,
)
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.layout import DELETED, STRAY, long_name, partition_of
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.metadata.identity import WrongDirectory
from fencepost.protocol.topics import TopicPartition

CLEAN = b'{"version":0,"brokerEpoch":-1}'
_FILES = {RECOVERY_POINTS: [RECOVERY_POINTS], LOG_STARTS: [LOG_STARTS_TWIN, LOG_STARTS]} | {
    name: [name] for name in (CLEANER_OFFSETS, HIGH_WATERMARKS)
}
"""The checkpoint files, each with the names under which it is written."""

logger = logging.getLogger(__name__)


class Wanted(NamedTuple):
    """Where a partition has to be."""

    topic_id: bytes
    store: FileStore


class _Row(NamedTuple):
    offset: int
    owner: bytes
    """The topic id; zeros if it is not known."""


_Rows = dict[TopicPartition, _Row]


class Rearrangement:
    """What has to be moved between the directories of the cores. Reads only, until `run`."""

    def __init__(self, stores: Sequence[FileStore], wanted: Mapping[TopicPartition, Wanted]) -> None:
        """`wanted` has every partition that exists, and `stores` every directory. Raises WrongDirectory and OSError."""
        self._stores = stores
        self._wanted = wanted
        self._home: dict[TopicPartition, FileStore] = {}
        """Where the directory of each partition is now; those without a directory are missing."""
        self._in_the_way: list[tuple[FileStore, TopicPartition]] = []
        found: dict[TopicPartition, list[FileStore]] = {}
        self._has_logs: set[FileStore] = set()
        for store in stores:
            for name in store.children():
                tp = partition_of(name)
                if tp is not None:
                    self._has_logs.add(store)
                    found.setdefault(tp, []).append(store)
        for tp, places in found.items():
            if tp in wanted:
                self._find_home(tp, places)
        self.clean = all(store.load(CLEAN_SHUTDOWN) is not None for store in self._has_logs)
        """Whether each directory with logs was shut down cleanly."""
        self.moves = [(tp, home) for tp, home in sorted(self._home.items()) if home is not wanted[tp].store]

    @cached_property
    def _rows(self) -> dict[str, dict[FileStore, _Rows]]:
        return {name: {store: _load(store, name) for store in self._stores} for name in _FILES}

    @cached_property
    def _exact(self) -> dict[str, bool]:
        return {name: self._is_exact(name) for name in _FILES}

    @cached_property
    def _final(self) -> dict[str, dict[FileStore, _Rows]]:
        return {name: self._final_rows(rows) for name, rows in self._rows.items()}

    def _find_home(self, tp: TopicPartition, places: list[FileStore]) -> None:
        wanted = self._wanted[tp]
        if places == [wanted.store]:
            self._home[tp] = wanted.store
            return
        own = [store for store in places if _topic_id(store, tp) in (wanted.topic_id, NO_TOPIC_ID)]
        if len(own) > 1:
            both = " and ".join(f"{store.place}/{tp}" for store in own)
            raise WrongDirectory(f"{both} are the same partition: move the one away that is not of this cluster")
        if own:
            self._home[tp] = own[0]
            if wanted.store in places and own[0] is not wanted.store:
                self._in_the_way.append((wanted.store, tp))

    def _is_exact(self, name: str) -> bool:
        """Whether the rows of all directories are exact: then the moved ones are, too."""
        data = [store.load(one) for store in self._stores for one in _FILES[name]]
        if name == LOG_STARTS:  # a directory whose logs have no file was not written by this version
            return all(is_exact(store.load(one)) for store in self._has_logs for one in _FILES[name])
        return name == RECOVERY_POINTS and all(one is None or is_exact(one) for one in data)

    def _final_rows(self, rows: Mapping[FileStore, _Rows]) -> dict[FileStore, _Rows]:
        """The rows of each directory after the moves. Those of partitions that do not exist stay where they are."""
        final: dict[FileStore, _Rows] = {
            store: {tp: row for tp, row in found.items() if tp not in self._wanted} for store, found in rows.items()
        }
        for tp in {tp for found in rows.values() for tp in found if tp in self._wanted}:
            wanted = self._wanted[tp]
            home = self._home.get(tp)
            places = [home] if home is not None else [wanted.store, *self._stores]  # without a directory: a lost log
            for row in (rows[store][tp] for store in places if tp in rows[store]):
                if row.owner in (wanted.topic_id, NO_TOPIC_ID):
                    final[wanted.store][tp] = row
                    break
        return final

    @property
    def is_needed(self) -> bool:
        return bool(self.moves) or any(
            not self._rows[name][store].keys() <= final[store].keys()
            for name, final in self._final.items()
            for store in self._stores
        )

    def run(self) -> None:
        """Move all. The caller has written durably that this has begun. Raises OSError."""
        for store in self._stores:
            store.make()
            if not self.clean and store.load(CLEAN_SHUTDOWN) is not None:  # it would make torn ends trusted
                store.remove(CLEAN_SHUTDOWN)
                store.sync_entries(store.changes)
        self._write({name: {s: {**self._rows[name][s], **rows[s]} for s in rows} for name, rows in self._final.items()})
        for store, tp in self._in_the_way:
            aside = long_name(tp, f".{_topic_id(store, tp).hex()}{STRAY}")
            logger.warning("%s/%s belongs to a deleted topic: renamed to %s", store.place, tp, aside)
            store.rename_child(str(tp), aside)
        for tp, home in self.moves:
            self._wanted[tp].store.adopt_child(home, str(tp))
        changed = [self._wanted[tp].store for tp, _ in self.moves] + [store for store, _ in self._in_the_way]
        for store in dict.fromkeys([*changed, *(home for _, home in self.moves)]):
            store.sync_entries(store.changes)
        self._write(self._final)
        if self.clean:
            for store in self._stores:
                if store.load(CLEAN_SHUTDOWN) is None:
                    store.replace(CLEAN_SHUTDOWN, CLEAN, durable=True)

    def _write(self, wanted: Mapping[str, Mapping[FileStore, _Rows]]) -> None:
        for name, by_store in wanted.items():
            for store, rows in by_store.items():
                owners = {tp: row.owner for tp, row in rows.items() if row.owner != NO_TOPIC_ID}
                data = encode_offsets({tp: row.offset for tp, row in rows.items()}, owners, exact=self._exact[name])
                for one in _FILES[name]:
                    found = store.load(one)
                    if found != data and (rows or found is not None or self._exact[name]):
                        store.replace(one, data, durable=True)


def left_logs(store: FileStore) -> list[str]:
    """The logs that are left in the directory of a core that is gone: of unknown topics, and copies. Raises OSError."""
    return [
        name
        for name in store.children()
        if not name.endswith(DELETED) and (partition_of(name) is not None or name.endswith(STRAY))
    ]


def _load(store: FileStore, name: str) -> _Rows:
    of_starts = name == LOG_STARTS
    offsets = load_log_starts(store) if of_starts else load_offsets(store, name)
    owners = load_log_start_owners(store) if of_starts else load_owners(store, name)
    return {tp: _Row(offset, owners.get(tp, NO_TOPIC_ID)) for tp, offset in (offsets or {}).items()}


def _topic_id(store: FileStore, tp: TopicPartition) -> bytes:
    """As the directory says; zeros if its file is damaged, which the next start reports."""
    try:
        return load_topic_id(store.child(str(tp)))
    except CorruptLogFile:
        return NO_TOPIC_ID
