"""What all producers share: how a record comes into the buffer, and waits for its topic and for room before."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import index
from typing import Any

import trio

from fencepost.client.config import ProducerConfig
from fencepost.client.errors import KafkaError, RetriableError
from fencepost.client.network.cluster import Cluster, PartitionInfo
from fencepost.client.producer.accumulator import HEADER_BYTES, RECORD_OVERHEAD, Accumulator, Batch, NewRecord
from fencepost.client.producer.metrics import ProducerMetrics
from fencepost.client.producer.partitioner import StickyPartition
from fencepost.client.producer.routes import Route
from fencepost.client.producer.sender import Sender
from fencepost.client.serializers import serialize_call
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

BATCH_LINGER_S = 0.005
_FAIRNESS = 64
_CHUNK = 256
_NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()
_LARGEST_OVERHEAD = 100
_LAST_MS = 2**63 - 1
Headers = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Pairs of name and value, or a mapping where no name comes twice."""


class BaseProducer:
    """Partitions, serializers, the buffer, and the task that sends."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, purpose: str) -> None:
        self._cluster = cluster
        self._config = config
        self._purpose = purpose
        self._accumulator = Accumulator(config.batch_size, config.buffer_memory, config.delivery_timeout_ms / 1000)
        self._memory = self._accumulator.memory
        self._key = serialize_call(config.key_serializer, "key")
        self._value = serialize_call(config.value_serializer, "value")
        self._routes: dict[str, Route] = {}
        self._sender: Sender | None = None
        self.linger_s = config.linger_ms / 1000
        self._block_ms = min(config.max_block_ms, config.delivery_timeout_ms)
        self._largest = min(config.max_request_size - _LARGEST_OVERHEAD, config.buffer_memory)
        self._choose = config.partitioner
        self._ignore_keys = config.partitioner_ignore_keys
        self._plain = self._key is None and self._value is None and self._choose is None
        self._handed_in = 0

    # -- for programs

    async def flush(self) -> None:
        """Send what lingers, and return when everything handed in so far is acknowledged or has failed."""
        self._accumulator.flush()
        for batch in self._accumulator.unfinished():
            await batch.done.wait()
        await trio.lowlevel.checkpoint()

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The topic's partitions by number, with their leaders. Waits for the topic for at most `max_block_ms`."""
        return (await self._cluster.topic(topic, deadline_ms=self._block_ms)).partitions

    def metrics(self) -> ProducerMetrics:
        """This producer's figures at this moment."""
        memory, in_flight = self._memory, self._sender.in_flight if self._sender is not None else 0
        return self._accumulator.counters.snapshot(in_flight, memory.limit, memory.used, memory.wait_ns, memory.waiting)

    # -- into the buffer

    async def _enqueue(
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
        """Put one record into a batch; waits for metadata and for buffer space, and for fairness now and then.

        `check` is called when nothing is waited for any more, and may still refuse the record. Cancelled means that the
        record is not in the buffer.
        """
        self._handed_in += 1
        if self._handed_in % _FAIRNESS == 0:
            await trio.lowlevel.checkpoint()
        record = self._record(topic, value, key, headers, timestamp_ms)
        if self._sender is None or self._sender.fatal is not None:
            self._refuse_if_broken()
        if check is not None:
            check()
        batch = self._put(topic, record, partition, linger_s)
        if batch is None:
            batch = await self._put_later(topic, record, partition, linger_s, check)
        return batch

    async def _enqueue_many(
        self,
        topic: str,
        records: Iterable[tuple[Any, Any]],
        partition: int | None,
        linger_s: float,
        follow: Callable[[Batch], None],
        check: Callable[[], None] | None = None,
    ) -> None:
        """`_enqueue` for (key, value) pairs; `follow` is called for each batch that one of them went into."""
        source = iter(records)
        while pairs := list(islice(source, _CHUNK)):
            await trio.lowlevel.checkpoint()
            self._refuse_if_broken()
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
                record = self._record(topic, value, key, _NO_HEADERS, now_ms)
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
        """`_put` for the pairs from `at` on that have no key and fit, many at a time; the position of the next one.

        Whatever is unusual about that one is left to `_put`.
        """
        route = self._routes.get(topic)
        if route is None or self._cluster.topics.get(topic) is not route.info or self._memory.waiting:
            return at
        accumulator, memory = self._accumulator, self._memory
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
            route.went_keyless(filled)
            follow(batch)
        return at

    def _record(self, topic: str, value: Any, key: Any, headers: Headers, timestamp_ms: int | None) -> NewRecord:
        """The record as it is sent. Raises SerializationError, TypeError, ValueError."""
        if timestamp_ms is None:
            timestamp_ms = int(self._cluster.wall_clock() * 1000)
        elif type(timestamp_ms) is not int:
            timestamp_ms = _whole_ms(timestamp_ms)
        if not 0 <= timestamp_ms <= _LAST_MS:
            raise ValueError(f"a timestamp of {timestamp_ms} ms: it must not be negative, nor beyond 64 bits")
        pairs = _NO_HEADERS if not headers else _checked_headers(headers)
        if self._key is not None or self._value is not None:
            more = list(pairs)
            if self._key is not None and key is not None:
                key = self._key(topic, more, key)
            if self._value is not None and value is not None:
                value = self._value(topic, more, value)
            pairs = tuple(more) if len(more) == len(pairs) else _checked_headers(more)
        if key is not None and type(key) is not bytes:
            key = _bytes_of(key, "key")
        if value is not None and type(value) is not bytes:
            value = _bytes_of(value, "value")
        return timestamp_ms, key, value, pairs

    def _put(
        self, topic: str, record: NewRecord, partition: int | None, linger_s: float, taken: int = 0
    ) -> Batch | None:
        """Put a record into its batch now, or return None: the topic is not known, or there is no room.

        `taken` bytes of the memory are the record's already.
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
            size += _headers_size(headers)
        if size > self._largest:
            raise self._too_large(size)
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
        batch = self._accumulator.append(queue, record, size, linger_s)
        if keyless:
            route.went_keyless(size)
        return batch

    async def _put_later(
        self,
        topic: str,
        record: NewRecord,
        partition: int | None,
        linger_s: float,
        check: Callable[[], None] | None,
    ) -> Batch:
        """Wait for the topic, then for room, for `max_block_ms` in all. Raises RetriableError after that."""
        ends = trio.current_time() + self._block_ms / 1000
        size = RECORD_OVERHEAD + len(record[1] or b"") + len(record[2] or b"") + _headers_size(record[3])
        if size > self._largest:
            raise self._too_large(size)
        taken = 0
        try:
            while True:
                left_ms = max((ends - trio.current_time()) * 1000, 1)
                await self._cluster.topic(topic, deadline_ms=left_ms)
                self._refuse_if_broken()
                if not taken and (self._memory.waiting or self._memory.used + size > self._memory.limit):
                    taken = await self._room(size, ends)
                self._refuse_if_broken()
                if check is not None:
                    check()
                batch = self._put(topic, record, partition, linger_s, taken)
                if batch is not None:
                    taken = 0
                    return batch
        finally:
            if taken:
                self._memory.give_back(taken)

    async def _enqueue_ready(
        self, partition: TopicPartition, data: bytearray, count: int, check: Callable[[], None]
    ) -> Batch:
        """Put a batch that lacks only its producer behind what the partition has; waits and raises as `_enqueue`."""
        if len(data) > self._largest:
            raise self._too_large(len(data))
        ends = trio.current_time() + self._block_ms / 1000
        left_ms = max((ends - trio.current_time()) * 1000, 1)
        count_there = len((await self._cluster.topic(partition.topic, deadline_ms=left_ms)).partitions)
        if not 0 <= partition.partition < count_there:
            raise _no_such_partition(*partition, count_there)
        size = len(data) - HEADER_BYTES
        await self._room(size, ends)
        try:
            self._refuse_if_broken()
            check()
        except BaseException:
            self._memory.give_back(size)
            raise
        return self._accumulator.append_ready(self._accumulator.queue(partition), data, count)

    async def _room(self, size: int, ends: float) -> int:
        self._accumulator.flush()
        with trio.move_on_at(ends):
            await self._memory.wait(size)
            return size
        raise RetriableError(
            f"no room in the buffer for {size} bytes within {self._block_ms / 1000:g} s (max_block_ms):"
            f" {self._memory.used} of {self._memory.limit} bytes are taken"
        )

    # -- where to

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
        route = self._routes[topic] = Route(info, self._accumulator, sticky, self._slow_brokers)
        return route

    def _slow_brokers(self) -> set[int]:
        return self._sender.slow_brokers() if self._sender is not None else set()

    def _chosen(self, topic: str, record: NewRecord, route: Route) -> int:
        assert self._choose is not None
        chosen = self._choose(topic, record[1], record[2], route.info.partitions)
        if not isinstance(chosen, int) or not 0 <= chosen < route.count:
            raise _no_such_partition(topic, chosen, route.count)
        return chosen

    # -- refusing

    def _too_large(self, size: int) -> KafkaError:
        limit, name = self._config.max_request_size, "max_request_size"
        if size + _LARGEST_OVERHEAD <= limit:
            limit, name = self._memory.limit, "buffer_memory"
        return KafkaError(f"a record of {size} bytes is over {name} ({limit})", code=ErrorCode.MESSAGE_TOO_LARGE)

    def _refuse_if_broken(self) -> None:
        if self._sender is None:
            raise RuntimeError("the producer is not open: use it with `async with`")
        fatal = self._sender.fatal
        if fatal is not None:
            raise type(fatal)(str(fatal.args[0]), code=fatal.code, api=fatal.api, node=fatal.node) from fatal


def _fill(records: list[NewRecord], pairs: list[tuple[Any, Any]], at: int, now_ms: int, room: int) -> tuple[int, int]:
    """Turn pairs from `at` on into records, as long as they have no key and fit: (bytes, the position of the next)."""
    before, filled = len(records), 0
    append = records.append
    for key, value in pairs[at:] if at else pairs:
        if key is not None or type(value) is not bytes:
            break
        filled += RECORD_OVERHEAD + len(value)
        if filled > room:
            filled -= RECORD_OVERHEAD + len(value)
            break
        append((now_ms, None, value, _NO_HEADERS))
    return filled, at + len(records) - before


def _no_such_partition(topic: str, partition: Any, count: int) -> KafkaError:
    return KafkaError(
        f"{topic!r} has {count} partitions, there is no {partition!r}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def _headers_size(headers: Iterable[tuple[str, bytes | None]]) -> int:
    return sum(10 + 3 * len(name) + len(content or b"") for name, content in headers)


def _checked_headers(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found: list[tuple[str, bytes | None]] = []
    for name, content in pairs:
        if not isinstance(name, str):
            raise TypeError(f"a header's name must be str, not {type(name).__name__}")
        if not name.isascii():
            name.encode()  # UnicodeEncodeError, a ValueError: here, and not later in the task that sends
        found.append((name, None if content is None else _bytes_of(content, f"header {name!r}")))
    return tuple(found)


def _whole_ms(timestamp_ms: Any) -> int:
    try:
        return index(timestamp_ms)
    except TypeError:
        raise TypeError(f"a timestamp must be int, ms since 1970, not {type(timestamp_ms).__name__}") from None


def _bytes_of(value: Any, what: str) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a record's {what} must be bytes, not {type(value).__name__}: give a serializer for it")
