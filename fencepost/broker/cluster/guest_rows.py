"""Reads the markers that other brokers have committed to this broker's logs (see guests.py)."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

import trio

from fencepost.broker.cluster.engine import Engine, StoreUnavailable
from fencepost.broker.cluster.ownership import METADATA_LOG
from fencepost.broker.cluster.rounds import RowBytes
from fencepost.broker.cluster.row_reading import Foreign, foreign_rows
from fencepost.broker.cluster.shared_log import SharedLog
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.store import CorruptLogFile

LOOK_SECONDS = 0.25
"""How often a broker looks at logs with open transactions; other brokers also ask for it."""
LOOKS = 20
"""Every so many looks all logs are looked at."""
BUSY_SECONDS = 0.001

logger = logging.getLogger(__name__)


class GuestRows:
    """Absorbs the rows of guests, mostly into logs with open transactions: in others a marker only moves the end."""

    def __init__(
        self,
        engine: Engine,
        row_bytes: RowBytes,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        logs: Callable[[], Collection[PartitionLog]],
    ) -> None:
        self.impossible = False
        """Whether no other broker leads a slot, and all its markers were absorbed."""
        self._engine = engine
        self._row_bytes = row_bytes
        self._in_thread = in_thread
        self._logs = logs
        self._wanted: dict[int, SharedLog] = {}

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            for _ in range(LOOKS):
                await trio.sleep(LOOK_SECONDS)
                await self.absorb()
            for log in self._logs():
                self.want(log)

    def want(self, log: PartitionLog) -> None:
        """Have the next look include this log. The metadata log has no guests, and is followed by other means."""
        shared = log.segments
        if isinstance(shared, SharedLog) and not self.impossible and shared.log_id != METADATA_LOG:
            self._wanted[shared.log_id] = shared

    async def absorb(self) -> bool:
        """Absorb what is there when this is called. Returns whether that succeeded."""
        while not self.impossible:
            logs = self._wanted | self._with_open_transactions()
            self._wanted = {}
            if not logs:
                return True
            ends = {number: log.bound_end for number, log in logs.items()}
            try:
                found: dict[int, list[Foreign]] = await self._in_thread(partial(self._read, ends))
            except (StoreUnavailable, CorruptLogFile) as error:
                self._wanted = logs
                logger.debug("the rows of other brokers cannot be read now: %s", error)
                return False
            self._wanted |= {
                number: logs[number] for number, rows in found.items() if not _absorbed(logs[number], rows)
            }
            if not self._wanted:
                return True
            await trio.sleep(BUSY_SECONDS)
        return True

    def _with_open_transactions(self) -> dict[int, SharedLog]:
        found = {}
        for log in self._logs():
            shared = log.segments
            if isinstance(shared, SharedLog) and shared.is_open and log.producers.first_undecided_offset() is not None:
                found[shared.log_id] = shared
        return found

    def _read(self, ends: Mapping[int, int]) -> dict[int, list[Foreign]]:
        """In a thread: the rows of each log from its known end on, if there are any. Raises as `foreign_rows`."""
        newest = self._engine.ends(list(ends))
        late = [log for log, end in ends.items() if newest.get(log, 0) > end]
        return {log: foreign_rows(self._engine, self._row_bytes, log, ends[log], newest[log]) for log in late}


def _absorbed(log: SharedLog, rows: list[Foreign]) -> bool:
    """Absorb the rows if they come next. Returns whether the log has them now."""
    if not rows or not log.is_open or log.bound_end >= rows[-1].row.end:
        return True
    if log.is_in_round or log.bound_end != rows[0].row.base:
        return False  # the round reports them; or it moved the log's end meanwhile
    log.absorb(rows)
    return True
