"""Rows that readers want and the tail does not have: fetched once, checked, and kept in a directory of bounded size.

A row becomes a segment, so old records are found and sent (by sendfile) like those of a log in files. A miss fetches
the next rows of the log, too. Rows that are adjacent in one object, or in the database, come in one request and share a
segment. Nothing survives the process: `run` begins with an empty directory. A segment that is evicted while a response
is sent is only unlinked: the response holds its descriptor.
"""

import itertools
import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import trio

from fencepost.broker.cluster.engine import Engine, Placement, Row, StoreUnavailable
from fencepost.broker.cluster.objects.object_store import place_name
from fencepost.broker.cluster.reading.stamping import stamp
from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.storage.segment import Segment
from fencepost.broker.log.storage.store import CorruptLogFile, Store

RETRY_SECONDS = 0.5
MERGE_SECONDS = 30.0
"""How long a merge of many logs may take from the replacement of a log's rows until that log knows it."""
AHEAD_BYTES = 4 << 20
"""What one miss fetches at most, unless the first row is larger."""
INDEX_INTERVAL_BYTES = 4096
FETCHES_MAX = 8

_numbers = itertools.count()
"""They make the files' names unique: a fetch that was abandoned may still write a file."""

logger = logging.getLogger(__name__)


class RowsChanged(CorruptLogFile):
    """The database has other rows at these offsets: they were merged, and their log will know that soon."""


class Reader(Protocol):
    """A log that rows are fetched for."""

    log_id: int

    def arrived(self) -> None:
        """A row that a read missed is here, or cannot be read. Called on the event loop."""

    def holds(self, row: Row) -> bool:
        """Whether the row is still part of the log: it may have been merged with others."""


class Ranges(Protocol):
    """Ranges of objects. Threads share it."""

    def read(self, place: Placement) -> bytes:
        """The bytes. Blocks. Raises StoreUnavailable and CorruptLogFile."""


class CacheCounters:
    """Totals since the start, and the present size."""

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0
        """Rows that a reader had to wait for. Those of another reader's load are not counted again."""
        self.ahead = 0
        """Rows that were fetched before a reader wanted them."""
        self.fetches = 0
        """Requests to a store; each brings one or more rows."""
        self.evictions = 0
        """Segments."""
        self.size_bytes = 0


class _Key(NamedTuple):
    """A row's bytes in the log. Merged rows may begin where another one began."""

    log_id: int
    base: int
    end: int
    placement: Placement


class _Load:
    """Adjacent rows under way, and the logs that wait for them."""

    def __init__(self) -> None:
        self.rows: dict[_Key, Row] = {}
        self.wanted: set[_Key] = set()
        """Those that readers wait for."""
        self.missing = Missing()
        self.readers: dict[Reader, None] = {}


class _Held(NamedTuple):
    """A segment here, and its rows."""

    segment: Segment
    keys: tuple[_Key, ...]


class ByteCache:
    """The rows in the directory, least recently used first. Its methods belong to the event loop, and never block."""

    def __init__(
        self, engine: Callable[[], Engine], ranges: Ranges, store: Store, bytes_max: int, fetches_max: int = FETCHES_MAX
    ) -> None:
        """`engine` returns a connection that nothing else uses. `store` is a directory that nothing else uses.

        `bytes_max` limits the segments; the newest one stays even if it is larger.
        """
        self.counters = CacheCounters()
        self._engine = engine
        self._engine_lock = threading.Lock()
        self._ranges = ranges
        self._store = store
        self._bytes_max = bytes_max
        self._limiter = trio.CapacityLimiter(fetches_max)
        self._held: dict[_Key, _Held] = {}
        self._by_use: OrderedDict[int, _Held] = OrderedDict()
        """By the identity of the segment, least recently used first."""
        self._loads: dict[_Key, _Load] = {}
        self._failures: dict[_Key, Exception] = {}
        self._send, self._receive = trio.open_memory_channel[_Load](math.inf)

    @property
    def loading(self) -> int:
        return len(self._loads)

    def segment(self, log_id: int, row: Row) -> Segment | None:
        """The batches of a row if they are here, maybe with those of its neighbours.

        Raises CorruptLogFile and OSError once if the last fetch of the row failed; the next `load` tries again.
        """
        key = _Key(log_id, row.base, row.end, row.placement)
        failure = self._failures.pop(key, None)
        if failure is not None:
            raise failure
        found = self._held.get(key)
        if found is None:
            return None
        self.counters.hits += 1
        self._by_use.move_to_end(id(found.segment))
        return found.segment

    def load(self, log: Reader, row: Row, ahead: Iterable[Row] = ()) -> Missing:
        """Fetch a row that is not here, or wait for a fetch that is under way; `log.arrived` is called at its end.

        `ahead` are the rows after it: they are fetched, too, as many as AHEAD_BYTES and a quarter of the cache allow.
        """
        key = _Key(log.log_id, row.base, row.end, row.placement)
        if key not in self._loads:
            self.counters.misses += 1
            for begun in self._begin(log.log_id, row, ahead):
                self._send.send_nowait(begun)
        load = self._loads[key]
        load.wanted.add(key)
        load.readers[log] = None
        return load.missing

    def _begin(self, log_id: int, first: Row, ahead: Iterable[Row]) -> list[_Load]:
        """The loads of these rows, as far as they are not here or under way; adjacent rows are in one load."""
        begun: list[_Load] = []
        size_bytes, previous = 0, None
        for row in (first, *ahead):
            key = _Key(log_id, row.base, row.end, row.placement)
            size_bytes += row.placement.size_bytes
            if row is not first:
                if size_bytes > min(AHEAD_BYTES, self._bytes_max // 4):
                    break
                if key in self._loads or key in self._held:
                    continue
                self.counters.ahead += 1
            self._failures.pop(key, None)
            if previous is None or not _are_adjacent(previous, row):
                begun.append(_Load())
            begun[-1].rows[key] = row
            self._loads[key] = begun[-1]
            previous = row
        return begun

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch until cancelled. Raises OSError if the directory cannot be emptied."""
        await trio.to_thread.run_sync(self._empty)
        async with trio.open_nursery() as nursery:
            task_status.started()
            async for load in self._receive:
                nursery.start_soon(self._fetch, load)

    async def _read(self, rows: Mapping[_Key, Row]) -> tuple[list[_Held], dict[_Key, Exception]]:
        """As `_built`, as soon as the stores are there."""
        while True:
            self.counters.fetches += 1
            try:
                return await trio.to_thread.run_sync(self._built, rows, limiter=self._limiter, abandon_on_cancel=True)
            except StoreUnavailable as error:
                logger.warning("rows of a log cannot be read now, so consumers wait: %s", error)
                await trio.sleep(RETRY_SECONDS)

    async def _fetch(self, load: _Load) -> None:
        held, failures = await self._read(load.rows)
        if failures:
            await trio.sleep(RETRY_SECONDS)  # rows that were merged meanwhile leave their log within this time
        for _ in range(int(MERGE_SECONDS / RETRY_SECONDS)):
            changed = [key for key, failure in failures.items() if isinstance(failure, RowsChanged)]
            if not any(reader.holds(load.rows[key]) for key in changed for reader in load.readers):
                break
            await trio.sleep(RETRY_SECONDS)
        for key in load.rows:
            del self._loads[key]
        for key, failure in failures.items():
            if not any(reader.holds(load.rows[key]) for reader in load.readers):
                continue
            logger.error("records of a log cannot be read offset=%d: %s", key.base, failure)
            if key in load.wanted:
                self._failures[key] = failure
        for one in held:
            self._held.update(dict.fromkeys(one.keys, one))
            self._by_use[id(one.segment)] = one
            self.counters.size_bytes += one.segment.size_bytes
        evicted = self._evict(len(held))
        load.missing.arrived = True
        for reader in load.readers:
            reader.arrived()
        if evicted:
            await trio.to_thread.run_sync(_delete, evicted, limiter=self._limiter)

    def _built(self, rows: Mapping[_Key, Row]) -> tuple[list[_Held], dict[_Key, Exception]]:
        """Fetch adjacent rows with one request, and build their segment. In a thread. Raises StoreUnavailable.

        If one of them is damaged, each is fetched alone.
        """
        try:
            return [self._held_of(rows)], {}
        except (CorruptLogFile, OSError) as error:
            if len(rows) == 1:
                return [], dict.fromkeys(rows, error)
        held: list[_Held] = []
        failures: dict[_Key, Exception] = {}
        for key, row in rows.items():
            try:
                held.append(self._held_of({key: row}))
            except (CorruptLogFile, OSError) as error:
                failures[key] = error
        return held, failures

    def _held_of(self, rows: Mapping[_Key, Row]) -> _Held:
        keys = tuple(rows)
        first, last = keys[0], keys[-1]
        if first.placement.object_id:
            start = first.placement.position
            size_bytes = last.placement.position + last.placement.size_bytes - start
            data = bytearray(self._ranges.read(Placement(first.placement.object_id, start, size_bytes)))
        else:
            data = self._inline(keys)
        segment = Segment(self._store, first.base, ending=f".{next(_numbers)}")
        position = 0
        with memoryview(data) as view:
            for row in rows.values():
                with view[position : position + row.placement.size_bytes] as part:
                    for at, base_offset, header in stamp(row, part, place_name(row.placement.object_id)):
                        segment.note(position + at, header, base_offset, INDEX_INTERVAL_BYTES)
                position += row.placement.size_bytes
        segment.next_offset = last.end
        try:
            segment.file.write(0, data)
        except OSError:
            segment.delete()
            raise
        return _Held(segment, keys)

    def _inline(self, keys: Sequence[_Key]) -> bytearray:
        log_id, base, end = keys[0].log_id, keys[0].base, keys[-1].end
        with self._engine_lock:
            found = self._engine().rows(log_id, base, end, inline=True, limit=len(keys))
        if [(row.base, row.end) for row in found] != [(key.base, key.end) for key in keys]:
            raise RowsChanged("the database", base, "the rows of these offsets are not there any more")
        return bytearray().join(row.inline or b"" for row in found)

    def _evict(self, newest: int) -> list[Segment]:
        """Forget the least recently used segments above the limit, but not the newest ones. Their files are still to be
        deleted.
        """
        evicted = []
        while self.counters.size_bytes > self._bytes_max and len(self._by_use) > newest:
            _, held = self._by_use.popitem(last=False)
            for key in held.keys:
                del self._held[key]
            self.counters.size_bytes -= held.segment.size_bytes
            self.counters.evictions += 1
            evicted.append(held.segment)
        return evicted

    def _empty(self) -> None:
        for name in self._store.sizes():
            self._store.remove(name)


def _are_adjacent(row: Row, following: Row) -> bool:
    place, after = row.placement, following.placement
    if place.object_id != after.object_id:
        return False
    return row.end == following.base and (not place.object_id or place.position + place.size_bytes == after.position)


def _delete(segments: Iterable[Segment]) -> None:
    """Delete the files of evicted segments. In a thread."""
    for segment in segments:
        try:
            segment.delete()
        except OSError as error:
            logger.warning("an evicted segment cannot be deleted, so its space stays in use: %s", error)
