"""Reads the markers that other brokers have committed to this broker's logs (see guests.py)."""

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
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
        logs = {} if self.impossible else self._wanted | self._with_open_transactions()
        self._wanted = {}
        if not logs:
            return True
        try:
            goals: dict[int, int] = await self._in_thread(partial(self._engine.ends, list(logs)))
            # Rows of this broker's own round are among them: they arrive when the round is delivered.
            while behind := [
                log for number, log in logs.items() if log.is_open and log.bound_end < goals.get(number, 0)
            ]:
                await self._absorb([(log, goals[log.log_id]) for log in behind if not log.is_in_round])
                await trio.sleep(BUSY_SECONDS)
        except (StoreUnavailable, CorruptLogFile) as error:
            logger.debug("the rows of other brokers cannot be read now: %s", error)
            self._wanted = logs
            return False
        return True

    async def _absorb(self, logs: Sequence[tuple[SharedLog, int]]) -> None:
        """Absorb the rows of logs up to these offsets, as far as no round of this broker was faster."""
        spans = [(log, log.bound_end, goal) for log, goal in logs]
        found: list[list[Foreign]] = await self._in_thread(partial(self._read, spans)) if spans else []
        for (log, start, _), rows in zip(spans, found, strict=True):
            if rows and log.is_open and not log.is_in_round and log.bound_end == start >= rows[0].row.base:
                log.absorb(rows)

    def _with_open_transactions(self) -> dict[int, SharedLog]:
        found = {}
        for log in self._logs():
            shared = log.segments
            if isinstance(shared, SharedLog) and shared.is_open and log.producers.first_undecided_offset() is not None:
                found[shared.log_id] = shared
        return found

    def _read(self, spans: Sequence[tuple[SharedLog, int, int]]) -> list[list[Foreign]]:
        """In a thread: the rows of each log between two offsets. Raises as `foreign_rows`."""
        return [foreign_rows(self._engine, self._row_bytes, log.log_id, start, end) for log, start, end in spans]
