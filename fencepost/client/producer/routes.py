"""The partition queues of one topic, as long as its metadata does not change."""

from collections.abc import Callable, Iterable

from fencepost.client.core.partitioner import KeyHashes, Load, StickyPartition
from fencepost.client.core.partitions import TopicInfo
from fencepost.client.producer.accumulator import Accumulator, Queue
from fencepost.protocol.topics import TopicPartition


class Route:
    """One topic of one producer. `slow_brokers` returns the brokers that have accepted nothing for too long."""

    __slots__ = ("_accumulator", "_current", "_hashes", "_queues", "_slow_brokers", "count", "info", "sticky")

    def __init__(
        self,
        info: TopicInfo,
        accumulator: Accumulator,
        sticky: StickyPartition,
        slow_brokers: Callable[[], Iterable[int]],
    ) -> None:
        self.info = info
        self.count = len(info.partitions)
        self.sticky = sticky
        self._accumulator = accumulator
        self._slow_brokers = slow_brokers
        self._hashes = KeyHashes(self.count)
        self._current: Queue | None = None
        self._queues: list[Queue | None] = [None] * self.count

    def queue(self, number: int) -> Queue:
        queue = self._queues[number]
        if queue is None:
            queue = self._queues[number] = self._accumulator.queue(TopicPartition(self.info.name, number))
        return queue

    def by_key(self, key: bytes) -> Queue:
        return self.queue(self._hashes.partition(key))

    def keyless(self) -> Queue:
        """The present queue for records without a key."""
        queue = self._current
        if queue is None or self.sticky.due:
            sticky = self.sticky
            if not 0 <= sticky.current < self.count:
                sticky.begin(self._load())
            elif sticky.due:
                sticky.settle(self._load, self._all_full())
            queue = self._current = self.queue(sticky.current)
        return queue

    def count_keyless(self, size_bytes: int) -> None:
        """A record of `size_bytes` went into the queue of `keyless`; the next may go to another."""
        if self.sticky.produced(size_bytes):
            self.sticky.settle(self._load, self._all_full())
            self._current = None

    def _all_full(self) -> bool:
        waiting = self.queue(self.sticky.current).waiting
        return not waiting or waiting[-1].size_bytes >= self._accumulator.batch_size

    def _load(self) -> Load:
        available = [number for number, one in enumerate(self.info.partitions) if one.leader >= 0]
        sizes = []
        for number in available:
            queue = self.queue(number)
            sizes.append(len(queue.waiting) + len(queue.resend))
        slow = frozenset(self._slow_brokers())
        left_out = frozenset(number for number in available if self.info.partitions[number].leader in slow)
        return Load(self.count, available, sizes, left_out if slow else frozenset())
