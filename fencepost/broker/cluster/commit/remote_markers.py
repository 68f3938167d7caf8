"""Markers for logs of other brokers. A coordinator commits them as a guest, together with its decision.

A guest does not know where such a log ends: the commit places the marker there, whatever the owner appends meanwhile.
It needs no rights to the log, because its own record in the same commit fences it. The owner absorbs the marker when it
commits to the log next, or looks (docs/decisions/0060-one-commit-per-round.md).
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any

import trio

from fencepost.broker.cluster.commit.rounds import Cut, Rounds, RowBytes
from fencepost.broker.cluster.commit.shared_log import SharedLog
from fencepost.broker.cluster.engine import LAST_OFFSET, SLOTS, Engine, NewLog, Row, Span, StoreUnavailable, log_id
from fencepost.broker.cluster.ownership import METADATA_LOG
from fencepost.broker.cluster.reading.row_reading import Foreign, many_foreign_rows
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import CorruptLogFile, Store, SyncTask
from fencepost.coordinator.ports import Marker
from fencepost.protocol.batch_header import BatchHeader
from fencepost.protocol.control_records import same_marker
from fencepost.protocol.topics import TopicPartition

EPOCH_OF_SLOT = 0
"""A guest's row gets its leader epoch from the database."""
LOOK_SECONDS = 0.25
"""How often a broker looks at logs with open transactions; other brokers also ask for it."""
LOOKS = 20
"""After this many looks, all logs are looked at."""
BUSY_SECONDS = 0.001

logger = logging.getLogger(__name__)


class RemoteMarkerLog:
    """The markers for one log of another broker: a `FlushedLog`, and a `Participant` of rounds.

    Its offsets count this broker's markers; where they are in the log, only the owner needs to know.
    """

    commits_remotely = True
    disowned = False
    offline = False
    writable = True
    flush_at_bytes = 1 << 62
    log_start_offset = 0
    written_bytes = 0
    closed_since_sync = 0
    unflushed_bytes = 0

    def __init__(self, tp: TopicPartition, topic_id: bytes, rounds: Rounds, store: Store) -> None:
        self.tp = tp
        self.store = store
        self.log_id = log_id(topic_id, tp.partition)
        self.high_watermark = 0
        """How many markers are durable."""
        self._new_log = NewLog(str(tp), topic_id)
        self._rounds = rounds
        self._batches: list[bytearray] = []
        self._headers: list[BatchHeader] = []
        self._cut_count = 0

    @property
    def segments(self) -> "RemoteMarkerLog":
        return self

    @property
    def log_end_offset(self) -> int:
        return self.high_watermark + len(self._batches)

    def append(self, marker: Marker, now_ms: int) -> Ticket:
        """Let a marker wait for the next round."""
        batch, header = same_marker(
            marker.producer_id, marker.producer_epoch, marker.commit, marker.coordinator_epoch, now_ms
        )
        self._batches.append(bytearray(batch))
        self._headers.append(header)
        self._rounds.enlist(self, len(batch))
        return Ticket(self, self.log_end_offset, self.log_end_offset - 1)

    # As a participant of rounds

    def cut(self) -> Cut | None:
        if not self._batches:
            return None
        self._cut_count = len(self._batches)
        batches, headers = list(self._batches), list(self._headers)
        return Cut(self, self.log_id, None, False, batches, headers, EPOCH_OF_SLOT, self._new_log)

    def committed(self, row: Row, foreign: Sequence[Foreign]) -> None:
        count, self._cut_count = self._cut_count, 0
        del self._batches[:count], self._headers[:count]
        self.high_watermark += count
        if self._batches:
            self._rounds.enlist(self)

    def refused(self, foreign: Sequence[Foreign]) -> None:
        """See `Participant`. A guest expects nothing, so this is for the other logs of a round."""
        self._cut_count = 0
        self._rounds.enlist(self)

    # As a flushed log

    def begin_sync(self, reserve: bool = False) -> tuple[int, list[SyncTask]]:
        """The next round of all logs, unless another log has begun it."""
        return self.log_end_offset, self._rounds.begin()

    def finish_sync(self, end_offset: int) -> None:
        self._rounds.deliver()

    def begin_writeback(self, max_bytes: int) -> tuple[int, list[SyncTask]]:
        return 0, []

    def finish_writeback(self, size_bytes: int) -> None:
        """Nothing was written back."""

    def take_offline(self, why: OSError) -> None:
        """A commit fails only if this broker was taken over."""
        self.writable = False


class RemoteMarkerLogs:
    """The logs of other brokers that this one has written markers to, or will."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._store = MemoryStore("guests")
        self._logs: dict[int, RemoteMarkerLog] = {}

    def of(self, tp: TopicPartition, topic_id: bytes) -> RemoteMarkerLog:
        """The log of a partition, made on first use."""
        number = log_id(topic_id, tp.partition)
        found = self._logs.get(number)
        if found is None:
            found = self._logs[number] = RemoteMarkerLog(tp, topic_id, self._rounds, self._store)
        return found

    def waiting(self, slots: Collection[int]) -> list[RemoteMarkerLog]:
        """The logs of these slots with markers that are not durable yet."""
        return [
            log
            for number, log in self._logs.items()
            if number % SLOTS in slots and log.high_watermark < log.log_end_offset
        ]

    def forget(self, slots: Collection[int]) -> None:
        """This broker leads these slots now; none of their logs may have waiting markers."""
        for number in [number for number in self._logs if number % SLOTS in slots]:
            del self._logs[number]


class RemoteMarkers:
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
        while True:
            for _ in range(LOOKS):
                await trio.sleep(LOOK_SECONDS)
                await self.apply_external()
            for log in self._logs():
                self.want(log)

    def want(self, log: PartitionLog) -> None:
        """Have the next look include this log. The metadata log has no guests, and is followed by other means."""
        shared = log.segments
        if isinstance(shared, SharedLog) and not self.impossible and shared.log_id != METADATA_LOG:
            self._wanted[shared.log_id] = shared

    async def apply_external(self) -> bool:
        """Absorb what is there when this is called. Returns whether that succeeded."""
        logs = {} if self.impossible else self._wanted | self._with_open_transactions()
        self._wanted = {}
        return await self._absorb(logs)

    async def apply_external_now(self, logs: Iterable[PartitionLog]) -> bool:
        """As `apply_external`, for these logs alone, and at once."""
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
                log.apply_external(rows)
        return ends

    def _with_open_transactions(self) -> dict[int, SharedLog]:
        found = {}
        for log in self._logs():
            shared = log.segments
            if isinstance(shared, SharedLog) and shared.is_open and log.producers.first_undecided_offset() is not None:
                found[shared.log_id] = shared
        return found
