"""Records that wait to be sent, in batches per partition, within the producer's buffer memory.

`core.sequences` decides the order and the sequences; this module has the batches and their listeners.
"""

from collections.abc import Callable
from typing import Protocol

import anyio

from fencepost.client.core.sequences import PartitionQueue, Producer, SequencedBatch
from fencepost.client.errors import AbortableError, KafkaError
from fencepost.client.producer.buffer import BufferMemory
from fencepost.client.producer.metrics import Counters
from fencepost.protocol.batch_header import read_header, set_producer
from fencepost.protocol.compression import Compression
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import decode_records
from fencepost.protocol.topics import TopicPartition

NewRecord = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
HEADER_BYTES = 61
RECORD_OVERHEAD = 16
"""The usual size of a record without its key, value and headers; batches are filled by this estimate."""
_NOT_DECODED: NewRecord = (-1, None, None, ())
"""A placeholder for each record of a batch that the program has built."""


class Listener(Protocol):
    """Is notified when batches are done."""

    def settled(self, batch: "Batch") -> None:
        """`batch` is done; `batch.error` is None if it succeeded."""


class Batch(SequencedBatch):
    """Records of one partition that are sent, and succeed or fail, together."""

    __slots__ = (
        "append_time_ms",
        "attempts",
        "base_offset",
        "created_at",
        "data",
        "done",
        "error",
        "halves",
        "last_error",
        "listeners",
        "queue",
        "ready_made",
        "size_bytes",
    )

    def __init__(self, queue: "Queue", created_at: float, ready_at: float, expires_at: float) -> None:
        super().__init__(ready_at, expires_at)
        self.queue = queue
        self.created_at = created_at
        self.size_bytes = HEADER_BYTES
        self.listeners: list[Listener] = []
        self.attempts = 0
        self.data: bytearray | None = None
        self.base_offset = -1
        self.append_time_ms = -1
        self.last_error: KafkaError | None = None  # the error of the last attempt
        self.error: KafkaError | None = None  # the error that it failed with
        self.done = anyio.Event()
        self.halves: list[Batch] = []
        self.ready_made = False  # the program has built `data`; only the producer's identity is missing

    def place_of(self, index: int) -> tuple[int, int]:
        """(offset, timestamp in ms) of the record at `index`; raises the batch's error. Only when `done`."""
        for half in self.halves:
            if index < len(half.records):
                return half.place_of(index)
            index -= len(half.records)
        if self.error is not None:
            raise self.error
        timestamp_ms = self.append_time_ms if self.append_time_ms >= 0 else self.records[index][0]
        return (self.base_offset + index if self.base_offset >= 0 else -1), timestamp_ms

    def encode(
        self, compression: Compression, producer: Producer, transactional: bool, level: int | None = None
    ) -> bytearray:
        """The bytes to send; encoded once, and then updated when the producer's identity changes."""
        if self.ready_made:
            assert self.data is not None
            self.ready_made = False
            set_producer(self.data, 0, producer[0], producer[1], self.base_sequence, transactional=transactional)
        if self.data is None:
            self.data = build_batch(
                self.records,
                compression=compression,
                level=level,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=self.base_sequence,
                transactional=transactional,
            )
        return self.data

    def restamp(self, producer: Producer, base_sequence: int) -> None:
        self.base_sequence = base_sequence
        if self.data is not None:
            set_producer(self.data, 0, producer[0], producer[1], base_sequence)

    def split(self) -> list["Batch"]:
        """Two halves, for a broker that rejects the batch as too large; the batch is done when both are."""
        if self.data is not None and self.records[0] is _NOT_DECODED:
            decoded = decode_records(self.data, 0, read_header(self.data))
            self.records = [(one.timestamp_ms, one.key, one.value, tuple(one.headers)) for one in decoded]
        middle = len(self.records) // 2
        whole = _SplitBatch(self)
        for records in (self.records[:middle], self.records[middle:]):
            half = Batch(self.queue, self.created_at, 0.0, self.expires_at)
            half.records = records
            half.listeners = [whole]
            half.attempts = self.attempts
            self.halves.append(half)
        content = self.size_bytes - HEADER_BYTES
        self.halves[0].size_bytes = HEADER_BYTES + content // 2
        self.halves[1].size_bytes = HEADER_BYTES + content - content // 2
        self.data = None
        return list(self.halves)


class _SplitBatch:
    """Completes a split batch when both of its halves are done."""

    __slots__ = ("batch", "open")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.open = 2

    def settled(self, batch: Batch) -> None:
        self.open -= 1
        if self.batch.error is None:
            self.batch.error = batch.error
        if not self.open:
            self.batch.done.set()
            for listener in self.batch.listeners:
                listener.settled(self.batch)


Queue = PartitionQueue[Batch]


class Accumulator:
    """All partitions of one producer, within `buffer_memory` bytes. `changed` is called when something may be sent."""

    def __init__(self, batch_size: int, buffer_memory: int, delivery_timeout_s: float) -> None:
        self.batch_size = batch_size
        self.memory = BufferMemory(buffer_memory)
        self.counters = Counters()
        self._delivery_timeout_s = delivery_timeout_s
        self.queues: dict[TopicPartition, Queue] = {}
        self.active: dict[TopicPartition, Queue] = {}
        self.changed: Callable[[], None] = lambda: None

    def queue(self, partition: TopicPartition) -> Queue:
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(partition)
        return queue

    def append(self, queue: Queue, record: NewRecord, size_bytes: int, linger_s: float) -> Batch:
        """Put a record, whose memory is reserved already, into its partition's open batch and return that batch."""
        batch = self.batch_for(queue, size_bytes, linger_s)
        batch.records.append(record)
        batch.size_bytes += size_bytes
        return batch

    def batch_for(self, queue: Queue, size_bytes: int, linger_s: float) -> Batch:
        """The batch of a partition for the next record of `size_bytes`."""
        batch = queue.waiting[-1] if queue.waiting else None
        if batch is None or batch.ready_made or batch.size_bytes + size_bytes > self.batch_size:
            return self.open_batch(queue, linger_s)
        if not linger_s and batch.ready_at:
            batch.ready_at = 0.0
            self.changed()
        return batch

    def open_batch(self, queue: Queue, linger_s: float) -> Batch:
        """A new batch at the end of a partition's queue; the one before it is full."""
        now = anyio.current_time()
        if queue.waiting:
            queue.waiting[-1].ready_at = 0.0
        self.active[queue.partition] = queue
        batch = Batch(queue, now, now + linger_s if linger_s else 0.0, now + self._delivery_timeout_s)
        queue.waiting.append(batch)
        self.changed()
        return batch

    def append_ready(self, queue: Queue, data: bytearray, count: int) -> Batch:
        """A complete batch of `count` records without a producer's identity; its memory is reserved already."""
        batch = self.open_batch(queue, 0.0)
        batch.records = [_NOT_DECODED] * count
        batch.data, batch.ready_made = data, True
        batch.size_bytes = len(data)
        return batch

    def flush(self) -> None:
        """Make all lingering batches ready."""
        for queue in self.active.values():
            for batch in queue.waiting:
                batch.ready_at = 0.0
        self.changed()

    def unfinished(self) -> list[Batch]:
        return [b for queue in self.active.values() for b in (*queue.in_flight, *queue.resend, *queue.waiting)]

    def abandon(self) -> None:
        """Expire all unanswered batches: their transaction is over, so they must never be sent again."""
        for queue in self.queues.values():
            queue.withheld = False
            for batch in queue.unresolved():
                batch.expires_at = 0.0

    def finish(self, batch: Batch, error: KafkaError | None = None, *, release: bool = True) -> None:
        """A batch is done: notify its listeners. With `release` it is in none of the lists, and its memory is freed."""
        batch.error = error
        if error is not None:
            self.counters.record_error += len(batch.records)
        if release:
            self.release(batch)
        batch.done.set()
        for listener in batch.listeners:
            listener.settled(batch)

    def release(self, batch: Batch) -> None:
        """Free the memory of a batch that is in none of the lists any more."""
        batch.data = None
        self.memory.release(batch.size_bytes - HEADER_BYTES)
        if batch.queue.idle:
            self.active.pop(batch.queue.partition, None)

    def end(self, error_of: Callable[[TopicPartition], KafkaError]) -> None:
        """No task reads responses any more: fail the batches that wait for one or may have lost it."""
        for queue in list(self.active.values()):
            for batch in queue.in_flight:
                if not batch.given_up:
                    batch.given_up = True
                    self.finish(batch, error_of(queue.partition), release=False)
            for batch in [one for one in queue.resend if one.may_be_written]:
                self.finish(batch, error_of(queue.partition), release=queue.give_up(batch))

    def drop(self, error: KafkaError, *, resend_too: bool) -> None:
        """Fail everything that is not in flight: waiting batches and, if asked, those to be sent again."""
        for queue in list(self.active.values()):
            self._drop_of(queue, error, resend_too=resend_too)

    def drop_behind_refused(self, queue: Queue) -> None:
        """Fail what waits behind a refused batch: its coordinator gives a new epoch only after the abort."""
        reason = f"not sent: the broker refused an earlier batch of this transaction for {queue.partition}"
        self._drop_of(queue, AbortableError(reason), resend_too=True)

    def _drop_of(self, queue: Queue, error: KafkaError, *, resend_too: bool) -> None:
        dropped = list(queue.waiting)
        queue.waiting.clear()
        if resend_too:
            dropped += queue.drop_resend()
        for batch in dropped:
            self.finish(batch, error)
        if queue.idle:
            self.active.pop(queue.partition, None)
