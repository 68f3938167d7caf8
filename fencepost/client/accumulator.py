"""Records that wait for their batch to be sent, per partition, with the sequence numbers that keep them in order.

A batch goes   open -> waiting -> in flight -> done
                                   |     ^
                                   v     |
                                  to resend      (with the sequence it had: a repeated one is recognised, row P3)
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import trio

from fencepost.client.errors import KafkaError
from fencepost.protocol.compression import Compression
from fencepost.protocol.record_batch import build_batch, set_producer
from fencepost.protocol.sequence import advance
from fencepost.protocol.topics import TopicPartition

NewRecord = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
MAX_IN_FLIGHT = 5
"""A broker remembers this many batches per producer and partition (row P3): no more may be unanswered."""
HEADER_BYTES = 61


class Listener(Protocol):
    """Who wants to hear how batches ended."""

    def settled(self, batch: "Batch") -> None:
        """`batch` is done; `batch.error` tells how."""
        ...


class Batch:
    """Records of one partition that are sent, and succeed or fail, together."""

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "base_sequence",
        "data",
        "done",
        "error",
        "expires_at",
        "halves",
        "listeners",
        "queue",
        "ready_at",
        "records",
        "size_bytes",
    )

    def __init__(self, queue: "PartitionQueue", ready_at: float, expires_at: float) -> None:
        self.queue = queue
        self.records: list[NewRecord] = []
        self.size_bytes = HEADER_BYTES
        self.ready_at = ready_at
        self.expires_at = expires_at
        self.listeners: list[Listener] = []
        self.base_sequence = -1
        self.data: bytearray | None = None
        self.base_offset = -1
        self.append_time_ms = -1
        self.error: KafkaError | None = None
        self.done = trio.Event()
        self.halves: tuple[Batch, Batch] | None = None

    def place_of(self, index: int) -> tuple[int, int]:
        """(offset, timestamp in ms) of the record at `index`; raises the batch's error. Only when `done`."""
        if self.halves is not None:
            first, second = self.halves
            count = len(first.records)
            return first.place_of(index) if index < count else second.place_of(index - count)
        if self.error is not None:
            raise self.error
        timestamp_ms = self.append_time_ms if self.append_time_ms >= 0 else self.records[index][0]
        return (self.base_offset + index if self.base_offset >= 0 else -1), timestamp_ms

    def encode(self, compression: Compression, producer: tuple[int, int], transactional: bool) -> bytearray:
        """The bytes to send; made once, and only re-stamped when the producer's identity changed since."""
        if self.data is None:
            self.data = build_batch(
                self.records,
                compression=compression,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=self.base_sequence,
                transactional=transactional,
            )
        return self.data

    def restamp(self, producer: tuple[int, int], base_sequence: int) -> None:
        """Give the batch a new identity and sequence, after an epoch bump (row P7)."""
        self.base_sequence = base_sequence
        if self.data is not None:
            set_producer(self.data, 0, producer[0], producer[1], base_sequence)

    def split(self) -> tuple["Batch", "Batch"]:
        """Two halves that keep the sequence range together, for a broker that found the batch too large."""
        middle = len(self.records) // 2
        halves = Batch(self.queue, 0, self.expires_at), Batch(self.queue, 0, self.expires_at)
        for half, records, offset in (
            (halves[0], self.records[:middle], 0),
            (halves[1], self.records[middle:], middle),
        ):
            half.records = records
            half.base_sequence = advance(self.base_sequence, offset)
            half.listeners = [_Whole(self)]
        self.halves = halves
        self.data = None
        return halves


class _Whole:
    """Tells a split batch that both of its halves are done."""

    __slots__ = ("batch",)

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def settled(self, batch: Batch) -> None:
        halves = self.batch.halves
        assert halves is not None
        first, second = halves
        other = second if batch is first else first
        if self.batch.error is None:
            self.batch.error = batch.error
        if other.done.is_set():
            self.batch.done.set()
            for listener in self.batch.listeners:
                listener.settled(self.batch)


class PartitionQueue:
    """What a producer holds for one partition."""

    __slots__ = (
        "backoff_until",
        "gap",
        "in_flight",
        "muted",
        "next_sequence",
        "partition",
        "producer",
        "resend",
        "restart",
        "waiting",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.resend: list[Batch] = []
        self.producer: tuple[int, int] = (-1, -1)
        self.next_sequence = 0
        self.backoff_until = 0.0
        self.gap = False  # a sequence was given out that nobody will send: the next one must not follow it
        self.restart = False  # the broker does not know our sequence: begin at 0 under a new epoch
        self.muted = False  # the transaction does not have this partition yet

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is unanswered."""
        return not (self.waiting or self.in_flight or self.resend)

    def unresolved(self) -> Iterator[Batch]:
        """Every batch with a sequence whose fate is open."""
        yield from self.in_flight
        yield from self.resend

    def is_first_unresolved(self, batch: Batch) -> bool:
        """Whether all earlier sequences here are settled, so that an error about order is about `batch`."""
        return all(other is batch or not _before(other, batch) for other in self.unresolved())

    def put_back(self, batch: Batch) -> None:
        """`batch` was not accepted, as far as we know: it goes out again, in its place."""
        self.in_flight.remove(batch)
        place = 0
        while place < len(self.resend) and _before(self.resend[place], batch):
            place += 1
        self.resend.insert(place, batch)

    def adopt(self, producer: tuple[int, int]) -> None:
        """Go on under another producer id or epoch, from sequence 0; batches to resend are stamped anew."""
        assert not self.in_flight, f"{self.partition}: a new epoch while batches of the old one are unanswered"
        self.producer = producer
        self.next_sequence = 0
        for batch in self.resend:
            batch.restamp(producer, self.next_sequence)
            self.next_sequence = advance(self.next_sequence, len(batch.records))
        self.gap = self.restart = False

    def next_batch(self, now: float) -> Batch | None:
        """Take the batch that may be sent now, with its sequence, or None."""
        if self.muted or self.backoff_until > now or len(self.in_flight) >= MAX_IN_FLIGHT:
            return None
        if self.resend:
            if self.in_flight:
                return None
            batch = self.resend.pop(0)
        else:
            if self.gap or not self.waiting or self.waiting[0].ready_at > now:
                return None
            batch = self.waiting.popleft()
            batch.base_sequence = self.next_sequence
            self.next_sequence = advance(self.next_sequence, len(batch.records))
        self.in_flight.append(batch)
        return batch

    def wakes_at(self, now: float) -> float:
        """When this partition may next have something to send without anything else happening."""
        if self.muted or (self.in_flight and (self.resend or len(self.in_flight) >= MAX_IN_FLIGHT)):
            return float("inf")
        if self.resend:
            return max(self.backoff_until, now)
        if not self.waiting:
            return float("inf")
        return max(self.backoff_until, self.waiting[0].ready_at)


def _before(one: Batch, other: Batch) -> bool:
    """Whether `one` has the earlier sequence; at most 5 batches are open, so half the number space tells."""
    return 0 < (other.base_sequence - one.base_sequence) % 2**31 < 2**30


class Accumulator:
    """All partitions of one producer, within `buffer_memory` bytes. `changed` is called when something may be sent."""

    def __init__(self, batch_size: int, buffer_memory: int, delivery_timeout_s: float) -> None:
        self._batch_size = batch_size
        self._limit = buffer_memory
        self._delivery_timeout_s = delivery_timeout_s
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.active: dict[TopicPartition, PartitionQueue] = {}
        self.used_bytes = 0
        self._space = trio.Event()
        self.changed: Callable[[], None] = lambda: None
        self.batch_full: Callable[[TopicPartition], None] = lambda partition: None

    @property
    def full(self) -> bool:
        """No more records fit now."""
        return self.used_bytes >= self._limit

    async def wait_for_space(self) -> None:
        """Return when there is room for another record; what lingers is sent meanwhile."""
        while self.full:
            self.flush()
            await self._space.wait()

    def append(self, partition: TopicPartition, record: NewRecord, size_bytes: int, linger_s: float) -> Batch:
        """Put a record into its partition's open batch and return that batch."""
        queue = self.active.get(partition)
        if queue is None:
            queue = self.queues.get(partition)
            if queue is None:
                queue = self.queues[partition] = PartitionQueue(partition)
            self.active[partition] = queue
        waiting = queue.waiting
        batch = waiting[-1] if waiting else None
        if batch is None or batch.size_bytes + size_bytes > self._batch_size:
            now = trio.current_time()
            if batch is not None:
                batch.ready_at = 0.0
                self.batch_full(partition)
            batch = Batch(queue, now + linger_s, now + self._delivery_timeout_s)
            waiting.append(batch)
            self.changed()
        elif not linger_s and batch.ready_at:
            batch.ready_at = 0.0
            self.changed()
        batch.records.append(record)
        batch.size_bytes += size_bytes
        self.used_bytes += size_bytes
        return batch

    def flush(self) -> None:
        """Everything that lingers is ready now."""
        for queue in self.active.values():
            for batch in queue.waiting:
                batch.ready_at = 0.0
        self.changed()

    def unfinished(self) -> list[Batch]:
        """Every batch that is not done yet, at this moment."""
        return [b for queue in self.active.values() for b in (*queue.in_flight, *queue.resend, *queue.waiting)]

    def abandon(self) -> None:
        """What is still unanswered belongs to a transaction that is over: it must never be sent again."""
        for queue in self.queues.values():
            queue.muted = False
            for batch in queue.unresolved():
                batch.expires_at = 0.0

    def finish(self, batch: Batch, error: KafkaError | None = None) -> None:
        """A batch that is in none of the lists any more is done: its memory is free, its listeners hear of it."""
        batch.error = error
        self._give_back(batch)
        batch.data = None
        batch.done.set()
        for listener in batch.listeners:
            listener.settled(batch)
        self.retire(batch.queue)

    def forget_size(self, batch: Batch, halves: tuple[Batch, Batch]) -> None:
        """A split batch's memory now belongs to its halves."""
        content = batch.size_bytes - HEADER_BYTES
        halves[0].size_bytes = HEADER_BYTES + content // 2
        halves[1].size_bytes = HEADER_BYTES + content - content // 2

    def retire(self, queue: PartitionQueue) -> None:
        """A partition with nothing left is not looked at until the next record."""
        if queue.idle:
            self.active.pop(queue.partition, None)

    def drop(self, error: KafkaError, *, resend_too: bool) -> None:
        """Fail everything that is not in flight: waiting batches and, if asked, those to be sent again."""
        for queue in list(self.active.values()):
            dropped = list(queue.waiting)
            queue.waiting.clear()
            if resend_too and queue.resend:
                dropped += queue.resend
                queue.resend.clear()
                queue.gap = True
            for batch in dropped:
                self.finish(batch, error)
            self.retire(queue)

    def _give_back(self, batch: Batch) -> None:
        self.used_bytes -= batch.size_bytes - HEADER_BYTES
        if not self.full:
            self._space.set()
            self._space = trio.Event()
