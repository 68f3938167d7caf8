"""What a round of flushes covers, and what each flush of it does."""

from collections.abc import Container, Iterable
from typing import Protocol

import trio

from fencepost.broker.log.results import FlushedLog, Ticket
from fencepost.broker.log.storage.store import SyncTask


class Gathering(Protocol):
    """What a round of the flusher gathers appends for."""

    @property
    def wants_more(self) -> bool:
        """Whether the next round had better have more bytes: connections may receive more while it waits."""

    async def gather(self) -> None:
        """Return when the next round should begin."""


class Round:
    """The logs requested since the last round began."""

    def __init__(self) -> None:
        self.logs: dict[FlushedLog, None] = {}
        self.done = trio.Event()
        self.ends: dict[FlushedLog, int] = {}
        """Where the logs end that it flushes, once it is under way."""

    def covers(self, ticket: Ticket) -> bool:
        """Whether the round is under way and flushes what the ticket waits for."""
        return not ticket.log.commits_remotely and ticket.end_offset <= self.ends.get(ticket.log, -1)


class FlushBatch:
    """The current content of those of these logs that are writable, covered by one flush."""

    def __init__(self, logs: Iterable[FlushedLog], reserve: bool) -> None:
        self.sync_targets: list[SyncTask] = []
        self.owners: list[FlushedLog] = []
        """The log of each target, by its index."""
        self.size_bytes = 0
        self.commits_remotely = False
        self.unopened: list[tuple[FlushedLog, OSError]] = []
        """The logs with a file that cannot be opened: they are not part of the flush."""
        self.ends: dict[FlushedLog, int] = {}
        """Where each log ends that is part of the flush."""
        for log in logs:
            if not log.writable:
                continue
            self.size_bytes += log.unflushed_bytes
            self.commits_remotely = self.commits_remotely or log.commits_remotely
            try:
                end_offset, sync_targets = log.begin_sync(reserve)
            except OSError as error:
                self.unopened.append((log, error))
                continue
            self.ends[log] = end_offset
            self.sync_targets += sync_targets
            self.owners += [log] * len(sync_targets)

    def finish(self, unflushed: Container[FlushedLog] = ()) -> None:
        """Finish the flush of every log that did not go offline and is not among the `unflushed`."""
        for log, end_offset in self.ends.items():
            if log.writable and log not in unflushed:
                log.finish_sync(end_offset)
