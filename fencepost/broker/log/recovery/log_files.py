"""The work on files that opens a log: a thread can do it while the event loop goes on."""

from dataclasses import dataclass, field

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability.upkeep import sync_all
from fencepost.broker.log.log_store import LogStore, OpenedLog
from fencepost.broker.log.offset_checkpoints import Bounds
from fencepost.protocol.topics import TopicPartition


@dataclass
class LogFiles:
    """A log that is read from its files, and made durable again after an unclean shutdown (`SyncTask`)."""

    store: LogStore
    tp: TopicPartition
    topic_id: bytes
    config: LogConfig
    bounds: Bounds
    check_bounds: bool = True
    rewrite_tail: bool = False
    """Whether the end of the log is written once more: after a failed flush and a kill, the page cache may hold clean
    pages that the disk lacks."""
    durable: bool = False
    """Whether that is flushed, too: readers must not see what a crash could lose."""
    _opened: OpenedLog | None = field(init=False, default=None)
    _error: Exception | None = field(init=False, default=None)
    _recovery_point: int = field(init=False, default=0)

    def sync(self) -> None:
        """Do it; an error is raised by `opened`, on the event loop: in the thread it would end the broker."""
        try:
            self._read()
        except Exception as error:  # noqa: BLE001 - `opened` raises it
            self._error = error

    def opened(self) -> tuple[OpenedLog, int]:
        """The log and its recovery point. Raises the error of `sync`: CorruptLogFile, OSError, or a defect's."""
        if self._error is not None:
            raise self._error
        assert self._opened is not None, "the files were not read"
        return self._opened, self._recovery_point

    def _read(self) -> None:
        bounds = self.bounds
        opened = self.store.open(
            str(self.tp), self.config, bounds.log_start_offset, bounds.trusted_offset, self.topic_id
        )
        segments, files = opened.segments, self.store.files(str(self.tp))
        if self.check_bounds:
            bounds.check(files, segments.first_offset, segments.end_offset)
        self._recovery_point = bounds.recovery_point
        if self.rewrite_tail:
            segments.rewrite_tail(bounds.recovery_point)
            if self.durable:  # the data and the names
                sync_all([*segments.tail_targets(bounds.recovery_point), *files.entry_targets()])
                self._recovery_point = segments.end_offset
        self._opened = opened
