"""Which records a member acquires (SharePartition.acquire)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from fencepost.broker.share.in_flight import ACQUIRED, AVAILABLE, NO_LOCK, InFlightBatch, InFlightState
from fencepost.broker.share.values import Acquired, AcquireMode, Fetched, Limits, Want
from fencepost.broker.share.window import WINDOW_MAX, Window


def acquire(
    window: Window, limits: Limits, member_id: str, fetched: Fetched, want: Want, now_ms: int
) -> list[Acquired]:
    """Give a member what is available of what was read."""
    if want.max_records <= 0 or not fetched.batches or fetched.batches[-1][1] < window.start:
        return []
    if fetched.held:
        window.schedule_known(fetched.held)
    last, room = fetched.batches[-1][1], window.room(limits)
    if room <= 0:
        if fetched.fetch_offset > window.end:
            return []
        room = window.end - fetched.fetch_offset + 1  # records in flight may be delivered again; no new ones
        last = min(last, window.end)
    left = min(want.max_records, room)
    acquisition = _Acquisition(window, limits, member_id, fetched, want, now_ms + limits.lock_ms, left)
    acquisition.run(last)
    acquired = acquisition.acquired
    if acquisition.held:
        acquired = list(_without(acquired, acquisition.held))
    if not fetched.aborted or not acquired:
        return acquired
    for base_offset, last_offset in fetched.aborted:
        window.archive_aborted(base_offset, last_offset)
    return list(_without(acquired, fetched.aborted))


def _without(acquired: Sequence[Acquired], aborted: Sequence[tuple[int, int]]) -> Iterator[Acquired]:
    """What was acquired, less records held back, or batches of aborted transactions; both are in offset order."""
    at = 0
    for one in acquired:
        first = one.first_offset
        while at < len(aborted) and aborted[at][1] < first:
            at += 1
        look = at
        while look < len(aborted) and aborted[look][0] <= one.last_offset:
            if first < aborted[look][0]:
                yield Acquired(first, aborted[look][0] - 1, one.delivery_count)
            first = aborted[look][1] + 1
            look += 1
        if first <= one.last_offset:
            yield Acquired(first, one.last_offset, one.delivery_count)


def _joined(offsets: Sequence[tuple[int, int]]) -> Iterator[Acquired]:
    """Offsets and their delivery counts, neighbours alike as one (ShareFetchUtils.accumulateAcquiredRecords)."""
    first = 0
    for at, (offset, count) in enumerate(offsets):
        if at + 1 == len(offsets) or offsets[at + 1] != (offset + 1, count):
            yield Acquired(offsets[first][0], offset, count)
            first = at + 1


@dataclass(slots=True)
class _Acquisition:
    """One fetch of one member under way."""

    window: Window
    limits: Limits
    member_id: str
    fetched: Fetched
    want: Want
    lock_until: int
    left: int
    """How many records may still be acquired; below 0 where a batch was acquired as a whole."""
    acquired: list[Acquired] = field(default_factory=list)
    held: list[tuple[int, int]] = field(default_factory=list)
    """The ranges of `acquired` that no member gets yet."""

    def run(self, last: int) -> None:
        """Acquire up to an offset."""
        window, first_read = self.window, self.fetched.batches[0][0]
        window.archive_stale(self.fetched.fetch_offset, first_read)
        begin, floor = first_read, window.batches.floor(first_read)
        if floor is None:
            begin = max(begin, window.start)
        elif floor.last >= begin:
            begin = floor.first
        if last < min(first_read, begin):
            window.advance()  # nothing is left of a full window: only this gives room (Kafka throws)
            return
        known = window.batches.beginning_in(min(first_read, begin), last)
        if not known:
            self._acquire_new(begin, last)
            return
        for batch in known:
            if self.left > 0 and window.gap_active:
                if begin < batch.first:
                    self._acquire_new(begin, batch.first - 1)
                begin = batch.last + 1
            if self.left <= 0:
                break
            self._acquire_again(batch, first_read, last)
        if self.left > 0 and known[-1].last < last:
            self._acquire_new(known[-1].last + 1, last)
        if self.acquired:
            window.read_gap(self.acquired[-1].last_offset + 1)

    def _acquire_again(self, batch: InFlightBatch, first: int, last: int) -> None:
        """Acquire what is available of a batch in flight."""
        throttle = self._is_throttled(batch, first, last)
        if throttle and self.acquired:
            self.left = 0
            return
        too_many = self.want.mode is AcquireMode.RECORD_LIMIT and batch.last - batch.first + 1 > self.left
        if batch.offsets is None and not batch.whole.available:
            return
        if batch.offsets is None and batch.within(first, last) and not (too_many or throttle):
            batch.deliver(batch.whole, self.member_id)
            self.window.lock(batch, batch.whole, self.lock_until)
            self._take(Acquired(batch.first, batch.last, batch.whole.deliveries))
            return
        offsets = self._acquire_offsets(batch, first, last)
        for one in _joined(offsets):
            self._take(one)
        if throttle and offsets:
            self.left = 0

    def _is_throttled(self, batch: InFlightBatch, first: int, last: int) -> bool:
        """Whether available records of a batch were delivered so often that one of them may be what members fail on."""
        limit = _throttle_limit(self.limits)
        if batch.most < limit:
            return False
        states = batch.states()
        if batch.offsets is not None:
            states = states[max(first - batch.first, 0) : last - batch.first + 1]
        return any(state.deliveries >= limit and state.available for state in states)

    def _acquire_offsets(self, batch: InFlightBatch, first: int, last: int) -> list[tuple[int, int]]:
        """Acquire single offsets of a batch; fewer at a time, the more often they were delivered.

        SharePartition.acquireSubsetBatchRecords: the batch is halved with each delivery beyond half the limit, and a
        record on its last delivery comes alone, so that a record that members fail on takes no others with it.
        """
        limit, throttle_limit = self.limits.delivery_count_limit, _throttle_limit(self.limits)
        states = self.window.split(batch)
        most = self.left if self.want.mode is AcquireMode.RECORD_LIMIT else len(states)
        throttled_most = None
        offsets: list[tuple[int, int]] = []
        first = max(first, self.window.none_before)
        for at in range(max(first - batch.first, 0), min(last - batch.first + 1, len(states))):
            if not states[at].available:
                continue
            state = batch.own(batch.first + at)
            is_last = limit > 2 and state.deliveries == limit - 1
            if is_last and offsets:
                break
            if throttled_most is None and state.deliveries >= throttle_limit:
                throttled_most = max(1, len(states) >> (state.deliveries - throttle_limit + 1))
            batch.deliver(state, self.member_id)
            self.window.lock(batch, state, self.lock_until)
            offsets.append((batch.first + at, state.deliveries))
            if is_last or len(offsets) in (most, throttled_most):
                break
        return offsets

    def _acquire_new(self, first: int, last: int) -> None:
        """Acquire records that are not in flight, up to the end of a record batch."""
        window = self.window
        if not window.batches:
            first = max(first, window.end)
        reached = self._reach(first)
        if reached < last:
            through = self._end_of_batch(reached)
            last = min(through, last) if window.gap_active else through
        if self.want.mode is AcquireMode.RECORD_LIMIT:
            acquired_last = self._add_limited(first, last, reached)
        else:
            self._add_batches(first, last)
            acquired_last = last
        if window.batches.first.first == first:
            window.start = first
        if self.fetched.held:
            self._hold_back(first, last, acquired_last)
        window.end = max(window.end, last)
        window.read_gap(acquired_last + 1)

    def _reach(self, first: int) -> int:
        """Up to where new records are as many as wanted, but for those that are held back."""
        reached, held = first + self.left - 1, self.fetched.held
        for offset, _ in held[bisect_left(held, (first, 0)) :] if held else ():
            if offset > reached or reached >= self.window.start + WINDOW_MAX:
                break
            reached += 1
        return reached

    def _hold_back(self, first: int, last: int, acquired_last: int) -> None:
        """Of new records, hold those back whose time has not come."""
        held = self.fetched.held
        for offset, until in held[bisect_left(held, (first, 0)) : bisect_left(held, (last + 1, 0))]:
            batch = self.window.batches.floor(offset)
            assert batch is not None
            state = batch.own(offset)
            state.state, state.deliveries, state.member_id = AVAILABLE, 0, ""
            self.window.schedule(batch, state, until)
            if offset <= acquired_last:
                self.held.append((offset, offset))
                self.left += 1

    def _end_of_batch(self, offset: int) -> int:
        """The last offset of the record batch that has an offset; the offset itself if none has."""
        batches = self.fetched.batches
        at = bisect_right(batches, offset, key=itemgetter(0)) - 1
        return batches[at][1] if at >= 0 and offset <= batches[at][1] else offset

    def _add_batches(self, first: int, last: int) -> None:
        """Add batches of at least the wanted size that begin where record batches begin."""
        size = max(self.want.batch_size, 1)
        for base_offset, _ in self.fetched.batches:
            if base_offset > last:
                break
            if base_offset - first >= size:
                self._add_batch(first, base_offset - 1)
                first = base_offset
        self._add_batch(first, last)

    def _add_batch(self, first: int, last: int) -> InFlightBatch:
        batch = InFlightBatch(first, last, InFlightState(ACQUIRED, 1, self.member_id))
        self.window.batches.put(batch)
        self.window.lock(batch, batch.whole, self.lock_until)
        self._take(Acquired(first, last, 1))
        return batch

    def _add_limited(self, first: int, last: int, acquired_last: int) -> int:
        """Add one batch of which no more is acquired than was asked for; the last offset that is (KIP-1206)."""
        if last <= acquired_last:
            self._add_batch(first, last)
            return last
        batch = self._add_batch(first, last)
        self.acquired[-1] = Acquired(first, acquired_last, 1)
        for offset in range(first, acquired_last + 1):
            batch.own(offset)
        batch.whole.state, batch.whole.deliveries, batch.whole.member_id, batch.whole.lock = AVAILABLE, 0, "", NO_LOCK
        self.window.make_available(acquired_last + 1)
        return acquired_last

    def _take(self, acquired: Acquired) -> None:
        self.acquired.append(acquired)
        self.left -= acquired.last_offset - acquired.first_offset + 1


def _throttle_limit(limits: Limits) -> int:
    """From how many deliveries on fewer records come at a time (SharePartition.throttleRecordsDeliveryLimit)."""
    return max(2, -(-limits.delivery_count_limit // 2))
