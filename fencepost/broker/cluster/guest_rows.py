"""Reads the markers that other brokers have committed to this broker's logs (see guests.py)."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any

import trio

from fencepost.broker.cluster.engine import LAST_OFFSET, Engine, Span, StoreUnavailable
from fencepost.broker.cluster.ownership import METADATA_LOG
from fencepost.broker.cluster.rounds import RowBytes
from fencepost.broker.cluster.row_reading import Foreign, many_foreign_rows
from fencepost.broker.cluster.shared_log import SharedLog
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.store import CorruptLogFile

LOOK_SECONDS = 0.25
"""How often a broker looks at logs with open transactions; other brokers also ask for it."""
LOOKS = 20
"""After this many looks, all logs are looked at."""
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
        return await self._absorb(logs)

    async def absorb_now(self, logs: Iterable[PartitionLog]) -> bool:
        """As `absorb`, for these logs alone, and at once."""
        found = {}
        for log in logs:
            shared = log.segments
            if isinstance(shared, SharedLog) and not self.impossible:
                found[shared.log_id] = shared
        return await self._absorb(found)

    async def _absorb(self, logs: dict[int, SharedLog]) -> bool:
        goals: dict[int, int] | None = None
        behind = list(logs.values())
        try:
            while behind:
                # Rows of this broker's own round are among the missing ones: they arrive when the round is delivered.
                quiet = [log for log in behind if log.is_open and not log.is_in_round]
                if quiet or goals is None:
                    goals = await self._read(quiet, list(logs), goals)
                behind = [log for log in behind if log.is_open and log.bound_end < goals.get(log.log_id, 0)]
                if behind:
                    await trio.sleep(BUSY_SECONDS)
        except (StoreUnavailable, CorruptLogFile) as error:
            logger.debug("the rows of other brokers cannot be read now: %s", error)
            self._wanted |= logs
            return False
        return True

    async def _read(
        self, logs: Sequence[SharedLog], all_logs: Sequence[int], goals: dict[int, int] | None
    ) -> dict[int, int]:
        """Absorb the rows of these logs, as far as no round of this broker is faster; return the ends of all."""
        spans = [Span(log.log_id, log.bound_end, LAST_OFFSET) for log in logs]

        def read() -> tuple[dict[int, int], list[list[Foreign]]]:
            # The ends first, so that the rows reach them.
            ends = goals
            if ends is None:
                ends = {head.log: head.next for head in self._engine.heads_of(all_logs)}
            return ends, many_foreign_rows(self._engine, self._row_bytes, spans)

        ends: dict[int, int]
        ends, found = await self._in_thread(read)
        for log, span, rows in zip(logs, spans, found, strict=True):
            if rows and log.is_open and not log.is_in_round and log.bound_end == span.start >= rows[0].row.base:
                log.absorb(rows)
        return ends

    def _with_open_transactions(self) -> dict[int, SharedLog]:
        found = {}
        for log in self._logs():
            shared = log.segments
            if isinstance(shared, SharedLog) and shared.is_open and log.producers.first_undecided_offset() is not None:
                found[shared.log_id] = shared
        return found
