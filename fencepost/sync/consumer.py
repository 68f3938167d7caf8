"""The blocking consumer: whole batches, and single records from batches that cross between threads as a whole."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from fencepost.client import CommittedOffset, ConsumerBatch, ConsumerRecord
from fencepost.client import Consumer as AsyncConsumer
from fencepost.client.consumer.consumed import reading_of
from fencepost.client.consumer.consumer import reader_of
from fencepost.client.consumer.whole_transactions import WholeTransactions as AsyncWholeTransactions
from fencepost.protocol.topics import TopicPartition
from fencepost.sync.loop import Loop
from fencepost.sync.mirror import Opened, Stream
from fencepost.sync.sending import HasPositions

_READ_ONLY = frozenset(
    {
        "assignment",
        "beginning_offsets",
        "committed",
        "committed_offsets",
        "end_offsets",
        "group_id",
        "metrics",
        "offsets_for_times",
        "partitions_for",
        "paused",
        "subscription",
    }
)
"""Names that neither move the consumer nor depend on its position. Any other call first gives unread records back."""


class _Hand:
    """A batch that the program reads one record at a time."""

    __slots__ = ("_at", "_partition", "_read", "_records", "_run", "_runs")

    def __init__(self, batch: ConsumerBatch[Any, Any]) -> None:
        self._runs = batch.runs
        self._read = reading_of(batch)
        self._run = self._at = 0
        self._partition, self._records = self._runs[0]

    def next(self) -> ConsumerRecord[Any, Any] | None:
        """The next record, None at the end. A record that cannot be deserialized raises, and stays the next one."""
        while self._at >= len(self._records):
            if self._run + 1 >= len(self._runs):
                return None
            self._run += 1
            self._at = 0
            self._partition, self._records = self._runs[self._run]
        found = self._read(self._partition, self._records[self._at])
        self._at += 1
        return found

    @property
    def last(self) -> tuple[TopicPartition, int] | None:
        """The partition and offset of the record that the program processes."""
        if self._at:
            return self._partition, self._records[self._at - 1][0]
        if not self._run:
            return None
        partition, records = self._runs[self._run - 1]
        return partition, records[-1][0]

    def left(self) -> dict[TopicPartition, tuple[int, int]]:
        """By partition: the offset of the first record that the program has not got, and the number of these."""
        at, found = self._at, {}
        for partition, records in self._runs[self._run :]:
            if at < len(records):
                found[partition] = (records[at][0], len(records) - at)
            at = 0
        return found


class Consumer(HasPositions, Opened, of=AsyncConsumer):
    """As fencepost.Consumer, blocking; for one thread at a time: a second one raises RuntimeError.

    `for record in consumer` takes `max_poll_records` at a time from the trio thread. Positions, `commit` and
    `send_offsets` count only the records that the program has got of these. For the group the program processes all of
    them, for at most `max_poll_interval`.
    """

    def __init__(self, loop: Loop, inner: Any) -> None:
        super().__init__(loop, inner)
        self._user = threading.RLock()
        self._hand: _Hand | None = None
        self._reader = reader_of(inner)

    def __iter__(self) -> Iterator[ConsumerRecord[Any, Any]]:
        """Single records; each is in hand until the next read."""
        return _Records(self)

    def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Commit the positions (or `offsets`) of this member, outside of transactions, as fencepost.Consumer does."""
        with self._exclusive():
            if offsets is None:
                offsets = self._handed_out()
            super()._call("commit", offsets)

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that the program will get; see fencepost.Consumer.position."""
        with self._exclusive():
            left = self._left().get(TopicPartition(*partition))
            found: int = left[0] if left is not None else super()._call("position", partition)
            return found

    def lag(self) -> dict[TopicPartition, int | None]:
        """How many records of each partition the program has not got; see fencepost.Consumer.lag."""
        with self._exclusive():
            left = self._left()
            lags: dict[TopicPartition, int | None] = super()._call("lag")
            return {p: lag if lag is None else lag + left.get(p, (0, 0))[1] for p, lag in lags.items()}

    def _call(self, name: str, *args: Any, patient: bool = False, **more: Any) -> Any:
        with self._exclusive():
            if name not in _READ_ONLY:
                self._settle()
            return super()._call(name, *args, patient=patient, **more)

    def _exclusive(self) -> "_ExclusiveUse":
        return _ExclusiveUse(self._user, getattr(self._loop.local, "called_back", False))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._exclusive():
            self._settle()
            yield

    def _left(self) -> dict[TopicPartition, tuple[int, int]]:
        if self._hand_is_void():
            self._hand = None
        return {} if self._hand is None else self._hand.left()

    def _hand_is_void(self) -> bool:
        """Whether the records on this side will be read again, by this or another member."""
        return self._reader.progress.hand_is_stale

    def _handed_out(self) -> dict[TopicPartition, int] | None:
        left = self._left()

        async def positions() -> dict[TopicPartition, int]:
            return {p: place.offset for p, place in self._reader.committer.offsets_in_hand()[1].items()}

        if not left:
            return None
        return {p: left[p][0] if p in left else offset for p, offset in self._loop.call(positions).items()}

    def _settle(self) -> None:
        """Give back the records that the program has not got: they will be read again."""
        left, hand, self._hand = self._left(), self._hand, None
        if hand is None or self._hand_is_void():
            return

        async def give_back() -> None:
            self._reader.take_back({partition: offset for partition, (offset, _) in left.items()}, hand.last)

        self._loop.call(give_back)


class WholeTransactions(Stream, of=AsyncWholeTransactions):
    """The result of `Consumer.transactions()`, blocking; read the records of each in the same thread."""


class _ExclusiveUse:
    """Locks a consumer for one thread; a callback may enter too, because that thread waits. Raises RuntimeError."""

    __slots__ = ("_free", "_lock")

    def __init__(self, lock: "threading.RLock", called_back: bool) -> None:
        self._lock = lock
        self._free = called_back

    def __enter__(self) -> Self:
        if not self._free and not self._lock.acquire(blocking=False):
            raise RuntimeError("another thread is using this consumer, and only one thread may use it at a time")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._free:
            self._lock.release()


class _Records(Iterator[ConsumerRecord[Any, Any]]):
    """One record at a time, mostly from the batch that is here already."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._progress = consumer._reader.progress
        self._lock = consumer._user
        self._source = consumer._inner.batches()

    def __next__(self) -> ConsumerRecord[Any, Any]:
        if self._lock.acquire(blocking=False):
            try:
                hand, progress = self._consumer._hand, self._progress
                if hand is not None and not (progress.rewind_due or progress.void or progress.lost):
                    record = hand.next()
                    if record is not None:
                        return record
            finally:
                self._lock.release()
        return self._next_batch()

    def _next_batch(self) -> ConsumerRecord[Any, Any]:
        consumer = self._consumer
        with consumer._exclusive():
            record = None
            while record is None:
                hand = _Hand(consumer._loop.call(self._source.__anext__, patient=True))
                consumer._hand = hand
                record = hand.next()
            return record
