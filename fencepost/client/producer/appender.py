"""Puts records into the buffer: serialized, with a partition, once the topic is known and there is room."""

from collections.abc import Callable, Iterable
from copy import copy
from itertools import islice, repeat
from typing import Any

import anyio
import anyio.lowlevel

from fencepost.client.config import ProducerConfig
from fencepost.client.core.partitioner import StickyPartition
from fencepost.client.core.partitions import PartitionInfo, by_partition, check_topic_name
from fencepost.client.errors import KafkaError, RetriableError, WouldBlockError
from fencepost.client.network.cluster import Cluster
from fencepost.client.producer.accumulator import HEADER_BYTES, RECORD_OVERHEAD, Accumulator, Batch, NewRecord
from fencepost.client.producer.metrics import ProducerMetrics
from fencepost.client.producer.record_serializer import NO_HEADERS, Headers, RecordSerializer, headers_size
from fencepost.client.producer.routes import Route
from fencepost.client.producer.sender import Sender
from fencepost.client.producer.undelivered import record_rejection, unanswered
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

BATCH_LINGER_S = 0.005
_FAIRNESS = 64
_CHUNK = 1024
_LARGEST_OVERHEAD = 100
_INSTEAD = "Call `submit`, which waits for it, or send this record later"


class Appender:
    """Appends records to the accumulator, for producers of all kinds."""

    def __init__(self, cluster: Cluster, config: ProducerConfig) -> None:
        self._cluster = cluster
        self._config = config
        self.accumulator = Accumulator(config.batch_size, config.buffer_memory, config.delivery_timeout_ms / 1000)
        self._memory = self.accumulator.memory
        self._serializer = RecordSerializer(config, cluster.wall_clock)
        self._routes: dict[str, Route] = {}
        self.sender: Sender | None = None
        self.linger_s = config.linger_ms / 1000
        self._block_ms = min(config.max_block_ms, config.delivery_timeout_ms)
        self._largest = min(config.max_request_size - _LARGEST_OVERHEAD, config.buffer_memory)
        self._choose = config.partitioner
        self._ignore_keys = config.partitioner_ignore_keys
        self._plain = self._serializer.is_plain and self._choose is None
        self._handed_in = 0

    # -- for programs

    async def flush(self) -> None:
        """Send lingering records, and return when all records so far are acknowledged or have failed."""
        self.accumulator.flush()
        for batch in self.accumulator.unfinished():
            await batch.done.wait()
        await anyio.lowlevel.checkpoint()

    async def partitions_for(self, topic: str) -> dict[TopicPartition, PartitionInfo]:
        """The topic's partitions in order, each with its leader and replicas.

        Raises RetriableError (UNKNOWN_TOPIC_OR_PARTITION) when there is no such topic for `max_block`.
        """
        return by_partition(await self._cluster.topic(topic, deadline_ms=self._block_ms))

    def metrics(self) -> ProducerMetrics:
        """This producer's metrics now."""
        memory, in_flight = self._memory, self.sender.in_flight if self.sender is not None else 0
        return self.accumulator.counters.snapshot(in_flight, memory.limit, memory.used, memory.wait_ns, memory.waiting)

    def close(self) -> None:
        """Fail what is not acknowledged, and accept no more records."""
        assert self.sender is not None
        self.accumulator.end(unanswered)
        self.sender.fail(KafkaError("the producer was closed"))

    # -- into the buffer

    async def enqueue(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers,
        timestamp_ms: int | None,
        linger_s: float,
        check: Callable[[], None] | None = None,
    ) -> Batch:
        """Put one record into a batch; waits for metadata and for buffer space, and lets other tasks run now and then.

        `check` is called after all waiting, and may still reject the record. A cancellation means that the
        record is not in the buffer.
        """
        self._cluster.check_loop()
        self._handed_in += 1
        if self._handed_in % _FAIRNESS == 0:
            await anyio.lowlevel.checkpoint()
        if self._serializer.looks_up:
            await self._serializer.look_up(topic, [(key, value)], headers)
        record = self._serializer.record(topic, value, key, headers, timestamp_ms)
        if self.sender is None or self.sender.fatal is not None:
            self.raise_if_broken()
        if check is not None:
            check()
        batch = self._put(topic, record, partition, linger_s)
        if batch is None:
            batch = await self._put_later(topic, record, partition, linger_s, check)
        return batch

    def put_nowait(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers,
        timestamp_ms: int | None,
        linger_s: float,
    ) -> Batch:
        """`enqueue` without waiting. Raises WouldBlockError where that would wait."""
        self._cluster.check_loop()
        self.raise_if_broken()
        if self._serializer.would_wait(topic, value, key, headers):
            raise WouldBlockError(f"a serializer has to look something up for topic {topic!r} first. {_INSTEAD}")
        record = self._serializer.record(topic, value, key, headers, timestamp_ms)
        batch = self._put(topic, record, partition, linger_s)
        if batch is None:
            check_topic_name(topic)
            if self._find_route(topic) is None:
                raise WouldBlockError(f"the partitions of topic {topic!r} are not known yet. {_INSTEAD}")
            used, limit = self._memory.used, self._memory.limit
            raise WouldBlockError(
                f"no room in the buffer for a record of topic {topic!r}: {used} of {limit} bytes (buffer_memory) are in"
                f" use. {_INSTEAD}"
            )
        return batch

    async def enqueue_many(
        self,
        topic: str,
        records: Iterable[tuple[Any, Any]],
        partition: int | None,
        linger_s: float,
        follow: Callable[[Batch], None],
        check: Callable[[], None] | None = None,
    ) -> None:
        """`enqueue` for (key, value) pairs; `follow` is called with the batch of each."""
        self._cluster.check_loop()
        source = iter(records)
        while pairs := list(islice(source, _CHUNK)):
            await anyio.lowlevel.checkpoint()
            if self._serializer.looks_up:
                await self._serializer.look_up(topic, pairs, NO_HEADERS)
            self.raise_if_broken()
            if check is not None:
                check()
            now_ms = int(self._cluster.wall_clock() * 1000)
            at = 0
            while at < len(pairs):
                if partition is None and self._plain and pairs[at][0] is None:
                    at = self._put_keyless(topic, pairs, at, now_ms, linger_s, follow)
                    if at == len(pairs):
                        break
                key, value = pairs[at]
                record = self._serializer.record(topic, value, key, NO_HEADERS, now_ms)
                batch = self._put(topic, record, partition, linger_s)
                if batch is None:
                    batch = await self._put_later(topic, record, partition, linger_s, check)
                follow(batch)
                at += 1

    def _put_keyless(
        self,
        topic: str,
        pairs: list[tuple[Any, Any]],
        at: int,
        now_ms: int,
        linger_s: float,
        follow: Callable[[Batch], None],
    ) -> int:
        """`_put` for the pairs from `at` on that have no key and fit, many at a time; returns the next position.

        `_put` handles the pair there.
        """
        route = self._routes.get(topic)
        if route is None or self._cluster.topics.get(topic) is not route.info or self._memory.waiting:
            return at
        accumulator, memory = self.accumulator, self._memory
        while at < len(pairs):
            key, value = pairs[at]
            if key is not None or type(value) is not bytes:
                return at
            size = RECORD_OVERHEAD + len(value)
            if size > self._largest or memory.used + size > memory.limit:
                return at
            batch = accumulator.batch_for(route.keyless(), size, linger_s)
            room = min(accumulator.batch_size - batch.size_bytes, memory.limit - memory.used, route.sticky.room)
            filled, at = _fill(batch.records, pairs, at, now_ms, max(room, size))
            batch.size_bytes += filled
            memory.used += filled
            route.count_keyless(filled)
            follow(batch)
        return at

    def _put(
        self, topic: str, record: NewRecord, partition: int | None, linger_s: float, taken: int = 0
    ) -> Batch | None:
        """Put a record into its batch now, or return None: the topic is not known, or there is no room.

        `taken` bytes of the memory are reserved for the record already.
        """
        route = self._routes.get(topic)
        if route is None or self._cluster.topics.get(topic) is not route.info:
            route = self._find_route(topic)
            if route is None:
                return None
        _, key, value, headers = record
        size = RECORD_OVERHEAD
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            size += headers_size(headers)
        if size > self._largest:
            raise self._too_large(size, record)
        keyless = False
        if partition is not None:
            if not 0 <= partition < route.count:
                raise _no_such_partition(topic, partition, route.count)
            queue = route.queue(partition)
        elif self._choose is not None:
            queue = route.queue(self._chosen(topic, record, route))
        elif key is None or self._ignore_keys:
            keyless = True
            queue = route.keyless()
        else:
            queue = route.by_key(key)
        if not taken and not self._memory.take(size):
            return None
        batch = self.accumulator.append(queue, record, size, linger_s)
        if keyless:
            route.count_keyless(size)
        return batch

    async def _put_later(
        self, topic: str, record: NewRecord, partition: int | None, linger_s: float, check: Callable[[], None] | None
    ) -> Batch:
        """Wait for the topic, then for room, for `max_block` in all. Raises RetriableError after that."""
        ends = anyio.current_time() + self._block_ms / 1000
        size = RECORD_OVERHEAD + len(record[1] or b"") + len(record[2] or b"") + headers_size(record[3])
        if size > self._largest:
            raise self._too_large(size, record)
        taken = 0
        try:
            while True:
                left_ms = max((ends - anyio.current_time()) * 1000, 1)
                await self._cluster.topic(topic, deadline_ms=left_ms)
                self.raise_if_broken()
                if not taken and (self._memory.waiting or self._memory.used + size > self._memory.limit):
                    taken = await self._room(size, ends)
                self.raise_if_broken()
                if check is not None:
                    check()
                batch = self._put(topic, record, partition, linger_s, taken)
                if batch is not None:
                    taken = 0
                    return batch
        finally:
            if taken:
                self._memory.release(taken)

    async def enqueue_ready(
        self, partition: TopicPartition, data: bytearray, count: int, check: Callable[[], None]
    ) -> Batch:
        """Add a batch without a producer's identity to the partition's queue; waits and raises as `enqueue`."""
        if len(data) > self._largest:
            raise self._too_large(len(data))
        ends = anyio.current_time() + self._block_ms / 1000
        left_ms = max((ends - anyio.current_time()) * 1000, 1)
        count_there = len((await self._cluster.topic(partition.topic, deadline_ms=left_ms)).partitions)
        if not 0 <= partition.partition < count_there:
            raise _no_such_partition(*partition, count_there)
        size = len(data) - HEADER_BYTES
        await self._room(size, ends)
        try:
            self.raise_if_broken()
            check()
        except BaseException:
            self._memory.release(size)
            raise
        return self.accumulator.append_ready(self.accumulator.queue(partition), data, count)

    async def _room(self, size: int, ends: float) -> int:
        self.accumulator.flush()
        with anyio.CancelScope(deadline=ends):
            await self._memory.wait(size)
            return size
        raise RetriableError(
            f"no room in the buffer for {size} bytes within {self._block_ms / 1000:g} s (max_block):"
            f" {self._memory.used} of {self._memory.limit} bytes (buffer_memory) are in use"
        )

    def _find_route(self, topic: str) -> Route | None:
        info = self._cluster.topics.get(topic)
        if info is None or not info.partitions:
            return None
        old = self._routes.get(topic)
        if old is not None:
            sticky = old.sticky
        else:
            adaptive = self._config.partitioner_adaptive_partitioning_enable
            sticky = StickyPartition(self._config.batch_size, self._cluster.random, adaptive)
        route = self._routes[topic] = Route(info, self.accumulator, sticky, self._slow_brokers)
        return route

    def _slow_brokers(self) -> set[int]:
        return self.sender.slow_brokers() if self.sender is not None else set()

    def _chosen(self, topic: str, record: NewRecord, route: Route) -> int:
        assert self._choose is not None
        chosen = self._choose(topic, record[1], record[2], route.info.partitions)
        if not isinstance(chosen, int) or not 0 <= chosen < route.count:
            raise _no_such_partition(topic, chosen, route.count)
        return chosen

    def _too_large(self, size: int, *records: NewRecord) -> KafkaError:
        limit, name = self._config.max_request_size, "max_request_size"
        if size + _LARGEST_OVERHEAD <= limit:
            limit, name = self._memory.limit, "buffer_memory"
        what = f"a record of {size} bytes is larger than {name} allows ({limit})"
        return record_rejection(what, None, [(one, what) for one in records], code=ErrorCode.MESSAGE_TOO_LARGE)

    def raise_if_broken(self) -> None:
        """Raise RuntimeError if the producer is not open, or the error that ended it."""
        if self.sender is None:
            raise RuntimeError("the producer is not open: use it with `async with`")
        fatal = self.sender.fatal
        if fatal is not None:
            raise copy(fatal) from fatal


def _fill(records: list[NewRecord], pairs: list[tuple[Any, Any]], at: int, now_ms: int, room: int) -> tuple[int, int]:
    """Turn pairs from `at` on into records, as long as they have no key and fit: (bytes, the position of the next).

    The first one fits. `send_many` spends half of its time here.
    """
    values: list[bytes] = []
    size_bytes = 0
    for key, value in islice(pairs, at, None):
        if key is not None or type(value) is not bytes:
            break
        filled = size_bytes + RECORD_OVERHEAD + len(value)
        if filled > room:
            break
        size_bytes = filled
        values.append(value)
    records.extend(zip(repeat(now_ms), repeat(None), values, repeat(NO_HEADERS)))
    return size_bytes, at + len(values)


def _no_such_partition(topic: str, partition: Any, count: int) -> KafkaError:
    return KafkaError(
        f"{topic!r} has {count} partitions, there is no {partition!r}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
