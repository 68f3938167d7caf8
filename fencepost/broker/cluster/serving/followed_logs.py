"""The logs of other brokers that consumers read here, because this broker is closer to them (KIP-392).

A log is opened by the first fetch of it, and closed when no fetch has come for a minute. One task opens and closes
them, and looks for new rows of all of them with one statement. What consumers see is what the database has: committed
rows, at most about LOOK_SECONDS late.
"""

import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from fencepost.broker.cluster.commit.rounds import Rounds, RowBytes
from fencepost.broker.cluster.commit.shared_log import ColdRows
from fencepost.broker.cluster.engine import Engine, Head, Row, Span, StoreUnavailable, log_id, slot_of
from fencepost.broker.cluster.growth.loops import wall_ms
from fencepost.broker.cluster.ownership import Ownership
from fencepost.broker.cluster.reading.loading import LoadedLog, load_heads
from fencepost.broker.cluster.reading.row_reading import SPANS_AT_ONCE, Foreign, bytes_in_objects, with_bytes
from fencepost.broker.cluster.serving.followed_log import FollowedRows, followed_log, raise_start
from fencepost.broker.log.durability.upkeep import sync_all
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.store import CorruptLogFile, Store, SyncTask
from fencepost.coordinator.metadata.service import MetadataService
from fencepost.protocol.topics import TopicPartition

LOOK_SECONDS = 0.1
"""How often new rows are looked for."""
IDLE_SECONDS = 60.0
"""A log that no fetch used for this time is closed."""
LOGS_MAX = 1000
"""At most this many logs are followed; consumers read the others from their leaders."""
ROWS_AT_ONCE = 20
"""How many rows of a log are read at once."""
BYTES_AT_ONCE = 16 << 20
"""A look reads no further row after this many bytes. The next look follows at once."""
ATTEMPTS = 10
"""How often a log is read again whose rows were merged at the same time."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Followed:
    log: PartitionLog
    rows: FollowedRows
    directory: str
    """The name of its directory in the scratch."""
    used_at: float
    tidied_at: float
    """When its producers and settings were looked at last."""


class FollowedLogs:
    def __init__(
        self,
        engine: Engine,
        row_bytes: RowBytes,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        rounds: Rounds,
        cold: ColdRows,
        scratch: Store,
        ownership: Ownership,
        lease_ms: int,
    ) -> None:
        """`scratch` is a directory that nothing else uses. `in_thread` runs what uses `engine`."""
        self._engine = engine
        self._row_bytes = row_bytes
        self._in_thread = in_thread
        self._rounds = rounds
        self._cold = cold
        self._scratch = scratch
        self._ownership = ownership
        self._lease_s = lease_ms / 1000
        self._metadata: MetadataService | None = None
        self._numbers = itertools.count()
        self._logs: dict[int, _Followed] = {}
        """By id; those whose rows came last are at the end."""
        self._wanted: dict[int, TopicPartition] = {}
        self._asked = trio.Event()
        """Set when a log is wanted."""
        self._looked = trio.Event()
        """Set at the end of the next attempt to open or to look."""
        self._seen_at = -math.inf
        """When the last successful look began."""
        self._removals: list[SyncTask] = []

    # For fetches

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The log of a partition that another broker leads. None if it is not open, or if this broker has not reached
        the database for as long as a lease: then consumers have to ask the leader.
        """
        number = self._number(tp)
        one = None if number is None else self._logs.get(number)
        if one is None or number is None or not self._is_current:
            return None
        one.used_at = trio.current_time()
        one.log.leader_epoch = self._ownership.slots[slot_of(number)].epoch
        return one.log

    def epoch(self, tp: TopicPartition) -> int | None:
        number = self._number(tp)
        return None if number is None else self._ownership.slots[slot_of(number)].epoch

    def needs_look(self, tp: TopicPartition, offset: int, claimed_epoch: int) -> bool:
        """Whether a fetch at `offset` should wait for `prepare`: the log is not open, or seems to end before it."""
        number = self._number(tp)
        if number is None or claimed_epoch not in (-1, self._ownership.slots[slot_of(number)].epoch):
            return False
        one = self._logs.get(number)
        return one is None or not self._is_current or offset > one.log.high_watermark

    async def prepare(self, partitions: Iterable[TopicPartition]) -> None:
        """Open these logs, and look once at those that are open. Waits for that as long as a lease."""
        began = trio.current_time()
        numbers = {number: tp for tp in partitions if (number := self._number(tp)) is not None}
        missing = {number: tp for number, tp in numbers.items() if number not in self._logs}
        if missing:
            self._wanted |= missing
            self._asked.set()
        some_open = len(missing) < len(numbers)
        with trio.move_on_after(self._lease_s):
            while (some_open and self._seen_at < began) or missing.keys() & self._wanted.keys():
                await self._looked.wait()

    @property
    def _is_current(self) -> bool:
        return trio.current_time() - self._seen_at < self._lease_s

    def _number(self, tp: TopicPartition) -> int | None:
        """The id of the partition's log, if it exists and another broker leads it."""
        topic = None if self._metadata is None else self._metadata.image.topics_by_name.get(tp.topic)
        if topic is None or not 0 <= tp.partition < topic.partitions:
            return None
        number = log_id(topic.topic_id, tp.partition)
        return None if self._ownership.leads(number) else number

    def logs(self) -> Collection[PartitionLog]:
        return [one.log for one in self._logs.values()]

    # The task

    async def run(self, metadata: MetadataService) -> None:
        """Open, follow and close until cancelled."""
        self._metadata = metadata
        look_at = trio.current_time()
        while True:
            with trio.move_on_after(max(0.0, look_at - trio.current_time()) if self._logs else math.inf):
                await self._asked.wait()
            self._asked = trio.Event()
            try:
                await self._open_wanted()
                if trio.current_time() >= look_at:
                    more = await self.look()
                    look_at = trio.current_time() + (0 if more else LOOK_SECONDS)
            except StoreUnavailable as error:
                logger.debug("the logs of other brokers cannot be read now: %s", error)
                look_at = trio.current_time() + LOOK_SECONDS
            finally:
                self._looked.set()
                self._looked = trio.Event()
            removals, self._removals = self._removals, []
            try:
                await trio.to_thread.run_sync(sync_all, removals)
            except OSError as error:
                logger.warning("local copies of other brokers' logs stay until the next start: %s", error)

    async def look(self) -> bool:
        """Read new rows of all logs once. Returns whether there are more. Raises StoreUnavailable."""
        self._close_unused()
        if not self._logs:
            return False
        began, logs = trio.current_time(), dict(self._logs)
        found = await self._in_thread(partial(self._engine.heads_of, list(logs)))
        heads: dict[int, Head] = {head.log: head for head in found}
        again, behind = set[int](), list[Span]()
        for number, one in logs.items():
            start, end = (heads[number].start, heads[number].next) if number in heads else (0, 0)
            known = one.rows.end_offset
            if one.rows.doubted or end < known or start > known or not self._start_raised(one, start):
                again.add(number)
            elif end > known:
                behind.append(Span(number, known, end))
        again |= await self._absorb(logs, behind[:SPANS_AT_ONCE])
        if again:
            logger.debug("%d logs of other brokers are read again, because their rows were replaced", len(again))
            await self._open({number: logs[number].log.tp for number in again})
        self._seen_at = began
        return any(number in self._logs and self._logs[number].rows.end_offset < end for number, _, end in behind)

    def _start_raised(self, one: _Followed, start: int) -> bool:
        try:
            raise_start(one.log, one.rows, start)
        except OSError as error:
            logger.error("cannot delete local copies of %s: %s", one.log.tp, error)
            return False
        return True

    async def _absorb(self, logs: Mapping[int, _Followed], spans: Sequence[Span]) -> set[int]:
        """Read the rows of these spans. Returns the logs whose rows were merged meanwhile."""
        if not spans:
            return set()
        try:
            found = await self._read(spans)
        except CorruptLogFile as error:
            logger.info("logs of other brokers are opened anew: %s", error)
            return {span.log for span in spans}
        again = set()
        for (number, _, _), rows in zip(spans, found, strict=True):
            one = logs[number]
            if not rows:
                continue
            try:
                if one.rows.are_next(rows):
                    one.rows.apply_external(rows)
                    self._logs[number] = self._logs.pop(number)
                    continue
            except (CorruptLogFile, OSError) as error:
                logger.error("rows of %s cannot be followed: %s", one.log.tp, error)
            again.add(number)
        return again

    async def _read(self, spans: Sequence[Span]) -> list[list[Foreign]]:
        """The next rows of each span with their bytes. Raises StoreUnavailable and CorruptLogFile."""
        next_rows = partial(self._engine.many_rows, spans, inline=True, limit=ROWS_AT_ONCE)
        found: list[list[Row]] = await self._in_thread(next_rows)
        sizes = itertools.accumulate((row.placement.size_bytes for rows in found for row in rows), initial=0)
        chosen = [[row for row in rows if next(sizes) < BYTES_AT_ONCE] for rows in found]
        wanted = [row for rows in chosen for row in rows]
        # Not with `in_thread`: others need not wait for the object store.
        data = await trio.to_thread.run_sync(bytes_in_objects, self._row_bytes, wanted, abandon_on_cancel=True)
        return [with_bytes(rows, data) for rows in chosen]

    # Opening and closing

    async def _open_wanted(self) -> None:
        wanted = self._wanted
        if not wanted:
            return
        began, is_first = trio.current_time(), not self._logs
        try:
            room = LOGS_MAX - len(self._logs)
            await self._open({number: wanted[number] for number in list(wanted)[: max(0, room)]})
            if len(wanted) > room:
                logger.debug("this broker follows %d logs, further ones are read from their leaders", LOGS_MAX)
            if is_first:
                self._seen_at = began
        finally:
            self._wanted = {number: tp for number, tp in self._wanted.items() if number not in wanted}

    async def _open(self, wanted: Mapping[int, TopicPartition]) -> None:
        """Open these logs, or open them anew. Raises StoreUnavailable."""
        loaded = await self._in_thread(partial(self._load, list(wanted)))
        for number, tp in wanted.items():
            before = self._logs.get(number)
            if before is not None:
                self._close(number, "its rows were replaced")
            if number in loaded and self._number(tp) == number:
                self._logs[number] = self._opened(number, tp, loaded[number], before)

    def _opened(self, number: int, tp: TopicPartition, found: LoadedLog | None, before: _Followed | None) -> _Followed:
        assert self._metadata is not None
        directory = f"{number}.{next(self._numbers)}"
        rows = FollowedRows(number, found, self._scratch.child(directory), self._rounds, self._cold)
        if before is not None:
            rows.damaged = before.rows.damaged | before.rows.doubted
        epoch = self._ownership.slots[slot_of(number)].epoch
        topic = self._metadata.image.topics_by_name[tp.topic]
        log = followed_log(rows, tp, topic.topic_id, self._metadata.log_config(tp.topic), found, epoch)
        now = trio.current_time()
        return _Followed(log, rows, directory, now if before is None else before.used_at, now)

    def _load(self, numbers: Collection[int]) -> dict[int, LoadedLog | None]:
        """In a thread: these logs, None if one has no row yet. One that is damaged is missing. Raises StoreUnavailable.

        Their owners may merge rows meanwhile: what does not fit together is read again.
        """
        found: dict[int, LoadedLog | None] = {}
        left = list(numbers)
        for _ in range(ATTEMPTS):
            heads = self._engine.heads_of(left)
            found.update(dict.fromkeys(set(left) - {head.log for head in heads}))
            try:
                loaded = load_heads(self._engine, self._row_bytes, heads, whole=())
            except CorruptLogFile as error:
                if len(left) > 1:
                    return found | {number: one for log in left for number, one in self._load([log]).items()}
                logger.warning("a log of another broker cannot be opened: %s", error)
                continue
            found.update({one.head.log: one for one in loaded if one.is_consistent})
            left = [number for number in left if number not in found]
            if not left:
                break
        return found

    def _close_unused(self) -> None:
        assert self._metadata is not None
        now = trio.current_time()
        for number, one in list(self._logs.items()):
            if self._number(one.log.tp) != number:
                self._close(number, "another broker does not lead it any more")
            elif not one.log.watchers and now - one.used_at > IDLE_SECONDS:
                self._close(number, "no consumer reads it here")
            elif now - one.tidied_at > IDLE_SECONDS:
                one.tidied_at = now
                one.log.config = self._metadata.log_config(one.log.tp.topic)
                one.log.forget_producers(wall_ms())

    def _close(self, number: int, why: str) -> None:
        one = self._logs.pop(number)
        one.log.disown(why)
        self._removals += self._scratch.discard_child(one.directory, f"{one.directory}.closed")
