"""The history of the metadata, read from a broker's directory, for the page of that name."""

from collections import deque
from pathlib import Path
from typing import Final, NamedTuple

import trio

from fencepost.broker.metadata.reader import MetadataFollower, MetadataReader, NoMetadataLog
from fencepost.cli.metadata.history_text import HistoryText
from fencepost.coordinator.metadata.delta import MetadataCorrupt
from fencepost.coordinator.metadata.history import MetadataChange

KEPT: Final = 300


class Entry(NamedTuple):
    """A change of the metadata: its head, its verdict, and a line for each record."""

    head: str
    verdict: str
    in_transaction: bool
    lines: tuple[str, ...]


class History:
    """The last changes in a directory. The first look reads the whole log, later ones what is new."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._follower: MetadataFollower | None = None
        self._text = HistoryText([], True)
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._reading = trio.Lock()

    async def look(self) -> tuple[list[Entry], str | None]:
        """The entries, newest first, and why there are no more (None: there is nothing to say)."""
        async with self._reading:
            problem = await trio.to_thread.run_sync(self._poll)
            return list(reversed(self._entries)), problem

    def _poll(self) -> str | None:
        try:
            if self._follower is None:
                self._text = HistoryText([], True)
                self._entries.clear()
                self._follower = MetadataReader(self._directory).follow()
            for moment in self._follower.decided(None):
                self._entries.append(self._entry(moment))
        except (NoMetadataLog, MetadataCorrupt, OSError) as error:
            self._follower = None  # the next look begins anew
            return str(error)
        return None

    def _entry(self, moment: MetadataChange) -> Entry:
        head, *lines = self._text.lines(moment)
        return Entry(head, moment.verdict.value, moment.in_transaction, tuple(line.strip() for line in lines))
