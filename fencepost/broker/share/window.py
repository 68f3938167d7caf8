"""The window of a share partition: its offsets, what is in flight between them, and the locks."""

import heapq
from collections.abc import Iterable

from fencepost.broker.share.in_flight import (
    ACQUIRED,
    ARCHIVING,
    AVAILABLE,
    NO_LOCK,
    TERMINAL,
    Batches,
    InFlightBatch,
    InFlightState,
)
from fencepost.broker.share.values import Limits
from fencepost.coordinator.share.values import DeliveryState

WINDOW_MAX = 16_000
"""The most offsets from the start to the end offset, where records that are held back do not count for the limit in
flight. Each offset may be a batch of the stored state, which has a limit of its own (`decisions.BATCHES_MAX`)."""
_SPARE_LOCKS = 64


class Window:
    """What is in flight from `start` to `end`; the decisions on it are in the modules beside this one."""

    def __init__(self) -> None:
        self.batches = Batches()
        self.start = 0
        self.end = 0
        self.stored = 0
        """The start offset that the persister has; what lies behind it and before `start` is done here only."""
        self.complete = 0
        """How many records at or after `start` are acknowledged or archived."""
        self._search = False
        """Whether records may be available again: the next fetch is not necessarily behind the end."""
        self._search_from: int | None = None
        """Nothing before this offset is available; None: nothing at all."""
        self._gap: tuple[int, int] | None = None
        """While the stored state had holes: the first offset of the first, and the end offset that it had."""
        self._locks: list[tuple[int, int]] = []
        """A heap of (`due` of a batch, its first offset); entries that no longer agree with a batch are void."""
        self._holds = False
        """Whether records have been held back since the window was empty."""
        self._passed = (0, 0, 0)
        """What `_past_held` found last."""
        self.scheduled = 0
        """How many records are held back that were never delivered."""

    @property
    def in_flight(self) -> int:
        """How many offsets lie in the window; 0 if no batch is known."""
        return self.end - self.start + 1 if self.batches else 0

    def room(self, limits: Limits) -> int:
        """How many offsets more may be in flight, by the limit of the group and that of the window."""
        return min(limits.max_in_flight - self.counted, WINDOW_MAX - self.in_flight)

    @property
    def counted(self) -> int:
        """How many offsets count for the limit of records in flight."""
        if not self._holds or not self.batches:
            return self.in_flight
        opened, delayed, scheduled = self._past_held()
        return self.end - opened + 1 + delayed - (self.scheduled - scheduled)

    def _past_held(self) -> tuple[int, int, int]:
        """The first offset that is neither done nor held back, and how many before it are held back.

        Those that were delivered, and those that were not.
        """
        opened, delayed, scheduled = self._passed if self._passed[0] >= self.start else (self.start, 0, 0)
        for batch in self.batches.since(opened):
            if self.gap_active and batch.first > opened:
                break
            opened = max(opened, batch.first)
            while opened <= batch.last:
                state = batch.at(opened)
                if not (state.done or state.held_back):
                    self._passed = opened, delayed, scheduled
                    return self._passed
                count = 1 if batch.offsets is not None else batch.last - opened + 1
                if state.held_back and state.deliveries:
                    delayed += count
                elif state.held_back:
                    scheduled += count
                opened += count
        self._passed = opened, delayed, scheduled
        return self._passed

    def in_window(self, first: int, last: int) -> int:
        """How many offsets of a range lie at or after the start."""
        return max(last - max(self.start, first) + 1, 0)

    # Where to read next

    def make_available(self, offset: int) -> None:
        """Records from an offset on are available again."""
        self._search = True
        self.hint(offset)
        self._look_from(offset)

    def _look_from(self, offset: int) -> None:
        """A record may be held back no more."""
        if offset < self._passed[0]:
            self._passed = (0, 0, 0)

    def search(self) -> None:
        """Look for available records at the next fetch (Kafka's findNextFetchOffset)."""
        self._search = True

    def hint(self, offset: int) -> None:
        """Records from an offset on may be available, once there is a reason to look."""
        self._search_from = offset if self._search_from is None else min(self._search_from, offset)

    @property
    def none_before(self) -> int:
        """Nothing before this offset is available."""
        return self.end + 1 if self._search_from is None else self._search_from

    def next_fetch_offset(self) -> int:
        """SharePartition.nextFetchOffset; a search begins where the one before it ended."""
        if not self.batches or self.start > self.batches.last.last:
            self._search = False
            return self.end
        if not self._search:
            return self.end + 1
        gap = self._gap[0] if self._gap is not None and self.gap_active else None
        for batch in self.batches.since(self._search_from if gap is None else None):
            if gap is not None:
                if batch.first > gap:
                    return gap
                gap = max(batch.last + 1, gap)
            found = self._available_in(batch)
            if found is not None:
                self._search_from = found
                return found
        self._search, self._search_from = False, None
        return self.end + 1

    def _available_in(self, batch: InFlightBatch) -> int | None:
        if batch.offsets is None:
            return batch.first if batch.whole.available else None
        begin = max((self._search_from or 0) - batch.first, 0)
        for offset in range(begin, len(batch.offsets)):
            if batch.offsets[offset].available:
                return batch.first + offset
        return None

    # Holes in the stored state

    @property
    def gap_active(self) -> bool:
        """Whether holes of the stored state are still to be read (Kafka's persisterReadResultGapWindow)."""
        return self._gap is not None and self._gap[1] == self.end

    def open_gap(self, offset: int) -> None:
        """The stored state has its first hole at an offset."""
        self._gap = (offset, self.end)

    def read_gap(self, offset: int) -> None:
        """What was stored or acquired has no holes before an offset."""
        if self._gap is not None:
            self._gap = (offset, self.end) if self.gap_active and offset <= self._gap[1] else None

    # Locks

    def lock(self, batch: InFlightBatch, state: InFlightState, until: int) -> None:
        """Lock records of a batch until a time."""
        state.lock = until
        if batch.due == NO_LOCK or until < batch.due:
            batch.due = until
            heapq.heappush(self._locks, (until, batch.first))
            if len(self._locks) > 2 * len(self.batches) + _SPARE_LOCKS:
                self._locks = [(held.due, held.first) for held in self.batches if held.due != NO_LOCK]
                heapq.heapify(self._locks)

    def hold_back(self, state: InFlightState, offset: int) -> None:
        """No member is to get a record, or a batch of which it is the first, before the time in its lock."""
        batch = self.batches.floor(offset)
        if batch is not None and batch.last >= offset:
            self._holds = True
            self.lock(batch, state, state.lock)

    def schedule(self, batch: InFlightBatch, state: InFlightState, until: int) -> None:
        """Hold back one record that was never delivered."""
        self._holds = True
        self.scheduled += 1
        self.lock(batch, state, until)

    def schedule_known(self, held: Iterable[tuple[int, int]]) -> None:
        """Hold back those records that are in flight already, available and never delivered."""
        for offset, until in held:
            batch = self.batches.floor(offset)
            if batch is not None and offset <= batch.last and batch.at(offset).is_new:
                self.schedule(batch, batch.own(offset), until)

    def has_new(self, first: int, last: int) -> bool:
        """Whether records of a range were never delivered, and are not held back."""
        if not self.batches or last > self.end or (self._gap is not None and self.gap_active and last >= self._gap[0]):
            return True
        return any(
            batch.at(offset).is_new
            for batch in self._touching(first, last)
            for offset in range(max(first, batch.first), min(last, batch.last) + 1)
        )

    def next_due(self) -> int | None:
        """When to look at locks next; None if there is none."""
        while self._locks:
            due, first = self._locks[0]
            batch = self.batches.get(first)
            if batch is not None and batch.due == due:
                return due
            heapq.heappop(self._locks)
        return None

    def take_due(self, now_ms: int) -> InFlightBatch | None:
        """The next batch whose locks are to be looked at by now."""
        due = self.next_due()
        if due is None or due > now_ms:
            return None
        batch = self.batches.get(heapq.heappop(self._locks)[1])
        if batch is not None:
            batch.due = NO_LOCK
        return batch

    def look_again(self, batch: InFlightBatch) -> None:
        """Wait for the locks of a batch that have not ended."""
        first = min((state.lock for state in batch.states() if state.lock >= 0), default=None)
        if first is not None:
            batch.due = first
            heapq.heappush(self._locks, (first, batch.first))

    # What is gone

    def split(self, batch: InFlightBatch) -> list[InFlightState]:
        """Give each offset of a batch its own state."""
        if batch.offsets is not None or batch.whole.undo is None:
            return batch.split()
        states = batch.split()
        if batch.whole.held_back:
            self.hold_back(batch.whole, batch.first)
        else:
            self.hint(batch.first)  # a transition that is being stored does not bind the new states: they are available
        return states

    def archive(
        self, first: int, last: int, batches: Iterable[InFlightBatch], before: DeliveryState, *, count: bool
    ) -> bool:
        """Archive the records of a range that are in state `before`; whether there were any.

        `count`: count them as complete; otherwise the start offset is about to pass them.
        """
        found = False
        for batch in batches:
            if batch.offsets is None:
                if batch.whole.state is not before:
                    continue
                if batch.within(first, last):
                    batch.whole.archive()
                    self.complete += (batch.last - batch.first + 1) * count
                    found = True
                    continue
            states = self.split(batch)
            for at in range(max(first - batch.first, 0), min(last - batch.first + 1, len(states))):
                if states[at].state is before:
                    self.scheduled -= states[at].held_back and not states[at].deliveries
                    batch.own(batch.first + at).archive()
                    self.complete += count
                    found = True
        self._look_from(first)
        return found

    def archive_stale(self, fetch_offset: int, base_offset: int) -> None:
        """SharePartition.maybeArchiveStaleBatches: what is available before the first batch of the log is gone."""
        if not self.batches or fetch_offset >= base_offset:
            return
        floor = self.batches.floor(fetch_offset)
        first = floor.first if floor is not None and floor.last >= fetch_offset else fetch_offset
        stale = self.batches.beginning_in(first, base_offset - 1)
        if self.archive(fetch_offset, base_offset - 1, stale, AVAILABLE, count=True):
            self.search()

    def archive_aborted(self, base_offset: int, last_offset: int) -> None:
        """Archive what was acquired of a batch that an aborted transaction wrote."""
        self.archive(base_offset, last_offset, self._touching(base_offset, last_offset), ACQUIRED, count=True)

    def archive_dead(self, first: int, last: int) -> None:
        """Archive what was to go to the dead-letter topic (SharePartition.initiateDLQAndArchive)."""
        self.archive(first, last, self._touching(first, last), ARCHIVING, count=False)
        self.complete += self.in_window(first, last)

    def _touching(self, first: int, last: int) -> list[InFlightBatch]:
        floor = self.batches.floor(first)
        return self.batches.beginning_in(first if floor is None else floor.first, last)

    def move_to(self, log_start_offset: int) -> None:
        """SharePartition.updateCacheAndOffsets: the log begins at a later offset."""
        if log_start_offset <= self.start:
            return
        if not self.batches:
            self.start = self.end = log_start_offset
            self.complete = 0
            return
        gone = self.batches.beginning_in(0, log_start_offset - 1)
        complete = sum(self._complete_before(batch, log_start_offset) for batch in gone)
        if self.archive(self.start, log_start_offset - 1, gone, AVAILABLE, count=False):
            self.search()
        self.start = log_start_offset
        self.complete -= complete
        self.end = max(self.end, self.start)

    def _complete_before(self, batch: InFlightBatch, offset: int) -> int:
        last = min(offset - 1, batch.last)
        if batch.offsets is None:
            return self.in_window(batch.first, last) if batch.whole.state in TERMINAL else 0
        states = batch.offsets[max(self.start - batch.first, 0) : last - batch.first + 1]
        return sum(state.state in TERMINAL for state in states)

    # What is done

    def advance(self) -> bool:
        """Move the start over what is done without gaps (SharePartition.maybeUpdateCachedStateAndOffsets)."""
        if not self._start_is_done():
            return False
        last, complete = self._done_through()
        if last is None:
            return False
        if last == self.batches.last.last:
            self.start = self.end = last + 1
            self.batches.clear()
            self._search_from, self._holds, self.scheduled = None, False, 0
            self.complete = 0
            return True
        ended = self.batches.floor(last)
        after = self.batches.after(last)
        if ended is not None and ended.last == last and after is not None:
            self.start = max(self.start, after.first)
            if self._gap is not None and self.gap_active:
                self.start = min(self._gap[0], self.start)
            self.batches.drop_before(after.first)
        else:
            self.start = max(self.start, last + 1)
            if ended is not None:
                self.batches.drop_before(ended.first)
        self.complete -= complete
        return True

    def _start_is_done(self) -> bool:
        batch = self.batches.floor(self.start) if self.batches else None
        if batch is None:
            return False
        if batch.offsets is None:
            return batch.whole.done
        return self.start > batch.last or batch.at(self.start).done

    def _done_through(self) -> tuple[int | None, int]:
        """The last offset before which all is done, and how many offsets of the window that is."""
        last, complete = None, 0
        for batch in self.batches:
            if self._gap is not None and self.gap_active and batch.last >= self._gap[0]:
                break
            if batch.offsets is None:
                if not batch.whole.done:
                    break
                through = batch.last
            else:
                while batch.done < len(batch.offsets) and batch.offsets[batch.done].done:
                    batch.done += 1
                if not batch.done:
                    break
                through = batch.first + batch.done - 1
            last = through
            complete += self.in_window(batch.first, through)
            if through < batch.last:
                break
        return last, complete
