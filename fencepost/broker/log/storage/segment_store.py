"""Logs stored as Kafka's segment files: the `LogStore` over a directory on disk, or one in memory."""

from collections.abc import Mapping

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.recovery.opening import Recovered, recover
from fencepost.broker.log.storage.checkpoints import NO_TOPIC_ID
from fencepost.broker.log.storage.store import Store, SyncTask


class SegmentStore:
    """One child directory of `store` for each log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def place(self) -> str:
        return self._store.place

    def names(self) -> list[str]:
        return self._store.children()

    def open(
        self, name: str, config: LogConfig, log_start_offset: int, trusted_offset: int, topic_id: bytes = NO_TOPIC_ID
    ) -> Recovered:
        """Open a log, and recover it above `trusted_offset` (row L2). Raises OSError and CorruptLogFile."""
        return recover(self.files(name), config, log_start_offset, trusted_offset)

    def files(self, name: str) -> Store:
        return self._store.child(name)

    def start_targets(self, starts: Mapping[str, int]) -> list[SyncTask]:
        """None: the data directory has a file for them."""
        return []

    def rename(self, name: str, to: str) -> None:
        self._store.rename_child(name, to)

    def delete(self, name: str, via: str) -> list[SyncTask]:
        return self._store.discard_child(name, via)
