"""What one flush of several logs covers, and the round that requested it."""

from collections.abc import Container, Iterable

import trio

from fencepost.broker.log.results import FlushedLog, Ticket
from fencepost.broker.log.storage.store import SyncTask


class FlushBatch:
    """The current content of these logs, covered by one flush."""

    def __init__(self, logs: Iterable[FlushedLog], reserve: bool) -> None:
        self.sync_targets: list[SyncTask] = []
        self.owners: list[FlushedLog] = []
        """The log of each target, by its index."""
        self.size_bytes = 0
        self.binds_late = False
        self.unopened: list[tuple[FlushedLog, OSError]] = []
        """The logs with a file that cannot be opened: they are not part of the flush."""
        self._ends: list[tuple[FlushedLog, int]] = []
        for log in logs:
            self.size_bytes += log.unflushed_bytes
            self.binds_late = self.binds_late or log.binds_late
            try:
                end_offset, sync_targets = log.begin_sync(reserve)
            except OSError as error:
                self.unopened.append((log, error))
                continue
            self._ends.append((log, end_offset))
            self.sync_targets += sync_targets
            self.owners += [log] * len(sync_targets)

    def finish(self, unflushed: Container[FlushedLog] = ()) -> None:
        """Finish the flush of every log that did not go offline and is not among the `unflushed`."""
        for log, end_offset in self._ends:
            if log.writable and log not in unflushed:
                log.finish_sync(end_offset)


class Round:
    """The logs requested since the last round began."""

    def __init__(self) -> None:
        self.logs: dict[FlushedLog, None] = {}
        self.done = trio.Event()
        self._ends: dict[FlushedLog, int] = {}

    def begin(self) -> None:
        """From now on nothing that is appended is part of it."""
        self._ends = {log: log.log_end_offset for log in self.logs if not log.binds_late}

    def covers(self, ticket: Ticket) -> bool:
        """Whether the round is under way and flushes what the ticket waits for."""
        return ticket.end_offset <= self._ends.get(ticket.log, -1)
