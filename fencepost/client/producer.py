"""The idempotent producer: every record once and in order per partition, with nothing for the program to poll."""

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import trio

from fencepost.client.accumulator import Accumulator, Batch, NewRecord
from fencepost.client.background import Background
from fencepost.client.cluster import Cluster
from fencepost.client.config import ProducerConfig
from fencepost.client.errors import KafkaError, RetriableError, code_of, error_for
from fencepost.client.partitioner import Partitioner
from fencepost.client.sender import Sender
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from fencepost.protocol.records import size_bound
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition

INIT_PRODUCER_ID = API_BY_KEY[22]
HIGHEST_EPOCH = 2**15 - 2
NO_LIMIT = 1 << 15
BATCH_LINGER_S = 0.005
_FAIRNESS = 64
_METADATA_CHECK = 4096
_MAX_ERRORS = 100
Headers = Sequence[tuple[str, bytes | None]]


class RecordMetadata(NamedTuple):
    """Where an acknowledged record stands; `timestamp_ms` is the broker's where the topic says LogAppendTime.

    `offset` is -1 in the one case where the broker knows the record as a duplicate but not its place any more.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def timestamp(self) -> int:
        """The same as `timestamp_ms`."""
        return self.timestamp_ms


class OwnIdentity:
    """Producer id and epoch of a producer without transactions; it may raise its epoch by itself (row P7, KIP-360)."""

    transactional_id: str | None = None
    highest_produce_version = NO_LIMIT

    def __init__(self, cluster: Cluster, background: Background) -> None:
        self._cluster = cluster
        self._background = background
        self._asking = False
        self.current: tuple[int, int] | None = None
        self.sender: Sender | None = None

    def acquire(self) -> None:
        """Ask any broker for a fresh producer id, once at a time (row P1)."""
        if not self._asking:
            self._asking = True
            self._background.start_soon(self._ask)

    async def _ask(self) -> None:
        backoff = self._cluster.policy.backoff()
        assert self.sender is not None
        try:
            while self.current is None:
                try:
                    self.current = await self._attempt()
                except RetriableError:
                    await backoff.pause()
                except KafkaError as error:
                    self.sender.fail(error)
                    return
        finally:
            self._asking = False
            self.sender.wake()

    async def _attempt(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        answer = await self._cluster.ask(None, INIT_PRODUCER_ID, request)
        if answer.error_code:
            raise error_for(code_of(answer.error_code), "no producer id", api="InitProducerId")
        return answer.producer_id, answer.producer_epoch

    def bump(self) -> bool:
        """The next epoch; at the end of the epochs the id is given up and another is asked for (row P12)."""
        assert self.current is not None
        producer_id, epoch = self.current
        self.current = (producer_id, epoch + 1) if epoch < HIGHEST_EPOCH else None
        return True


class Tracker:
    """Counts the batches that a group of records went into, and keeps what went wrong with them."""

    def __init__(self, on_error: Callable[[KafkaError], None] | None = None) -> None:
        self._open: set[Batch] = set()
        self._on_error = on_error
        self.errors: list[KafkaError] = []
        self._settled = trio.Event()

    def follow(self, batch: Batch) -> None:
        """A record of the group is in `batch`."""
        if batch not in self._open:
            self._open.add(batch)
            batch.listeners.append(self)

    def settled(self, batch: Batch) -> None:
        """`batch` is done."""
        self._open.discard(batch)
        if batch.error is not None and len(self.errors) < _MAX_ERRORS:
            self.errors.append(batch.error)
            if self._on_error is not None:
                self._on_error(batch.error)
        if not self._open:
            self._settled.set()

    async def wait(self) -> None:
        """Return when all batches are done."""
        while self._open:
            self._settled = trio.Event()
            await self._settled.wait()


class BaseProducer:
    """What both producers share: partitions, serializers, the buffer, and the task that sends."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, purpose: str) -> None:
        self._cluster = cluster
        self._config = config
        self._purpose = purpose
        self._accumulator = Accumulator(config.batch_size, config.buffer_memory, config.delivery_timeout_ms / 1000)
        self._accumulator.batch_full = self._batch_full
        self._partitioners: dict[str, Partitioner] = {}
        self._sender: Sender | None = None
        self.linger_s = config.linger_ms / 1000
        self._sent = 0

    async def flush(self) -> None:
        """Send what lingers, and return when everything handed in so far is acknowledged or has failed."""
        self._accumulator.flush()
        for batch in self._accumulator.unfinished():
            await batch.done.wait()
        await trio.lowlevel.checkpoint()

    def _batch_full(self, partition: TopicPartition) -> None:
        partitioner = self._partitioners.get(partition.topic)
        if partitioner is not None:
            partitioner.next_run()

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

        `check` is called when nothing is waited for any more, and may still refuse the record.
        """
        config = self._config
        if config.key_serializer is not None and key is not None:
            key = config.key_serializer(key)
        if config.value_serializer is not None and value is not None:
            value = config.value_serializer(value)
        self._sent += 1
        if self._sent % _FAIRNESS == 0:
            await trio.lowlevel.checkpoint()
        info = self._cluster.topics.get(topic)
        while info is None or self._accumulator.full or self._sent % _METADATA_CHECK == 0:
            await self._cluster.topic(topic, deadline_ms=config.delivery_timeout_ms)
            await self._accumulator.wait_for_space()
            info = self._cluster.topics.get(topic)
            if self._sent % _METADATA_CHECK == 0:
                self._sent += 1
        self._refuse_if_broken()
        if check is not None:
            check()
        count = len(info.partitions)
        if partition is None:
            partitioner = self._partitioners.get(topic)
            if partitioner is None:
                partitioner = self._partitioners[topic] = Partitioner(self._cluster.random)
            partition = partitioner.choose(key, count)
        elif not 0 <= partition < count:
            raise KafkaError(
                f"{topic!r} has {count} partitions, there is no {partition}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        when = timestamp_ms if timestamp_ms is not None else int(self._cluster.wall_clock() * 1000)
        size = size_bound(key, value, headers) if headers else 31 + len(key or b"") + len(value or b"")
        if size > config.max_request_size:
            raise KafkaError(
                f"a record of {size} bytes is over max_request_size ({config.max_request_size})",
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )
        record: NewRecord = (when, key, value, tuple(headers))
        return self._accumulator.append(TopicPartition(topic, partition), record, size, linger_s)

    def _refuse_if_broken(self) -> None:
        if self._sender is None:
            raise RuntimeError("the producer is not open: use it with `async with`")
        if self._sender.fatal is not None:
            raise type(self._sender.fatal)(
                str(self._sender.fatal.args[0]),
                code=self._sender.fatal.code,
                api=self._sender.fatal.api,
                node=self._sender.fatal.node,
            ) from self._sender.fatal


class Producer(BaseProducer):
    """An idempotent producer; open it with `async with kafka.producer(...)`.

    Closing it waits until everything is acknowledged, unless the block ends with an exception.
    """

    def __init__(self, cluster: Cluster, background: Background, config: ProducerConfig, purpose: str) -> None:
        super().__init__(cluster, config, purpose)
        self._background = background
        self._scope: trio.CancelScope | None = None

    async def __aenter__(self) -> "Producer":
        identity = OwnIdentity(self._cluster, self._background)
        self._sender = identity.sender = Sender(self._cluster, self._accumulator, identity, self._config, self._purpose)
        self._scope = self._background.start_soon(self._sender.run)
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            assert self._sender is not None
            assert self._scope is not None
            self._sender.fail(KafkaError("the producer was closed"))
            self._scope.cancel()

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until every replica that must have it has it.

        Raises RetriableError when `delivery_timeout_ms` ends first (the record may still have been written), other
        KafkaErrors at once. Cancelling the wait does not take the record back.
        """
        batch = await self._enqueue(topic, value, key, partition, headers, timestamp_ms, self.linger_s)
        index = len(batch.records) - 1
        await batch.done.wait()
        offset, timestamp = batch.place_of(index)
        return RecordMetadata(topic, batch.queue.partition.partition, offset, timestamp)

    def batch(self) -> "SendMany":
        """A context for many records at once: `async with producer.batch() as b: await b.send(...)`."""
        return SendMany(self)


class SendMany:
    """Many records: `send` waits only for buffer space; the end of the block waits for all acknowledgements.

    What failed is raised there as one ExceptionGroup of KafkaErrors (at most 100 of them), one per failed batch.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._tracker = Tracker()
        self._linger_s = max(BATCH_LINGER_S, producer.linger_s)

    async def __aenter__(self) -> "SendMany":
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer._accumulator.flush()
        if error is not None:
            return
        await self._tracker.wait()
        if self._tracker.errors:
            raise ExceptionGroup("records that were not acknowledged", self._tracker.errors)

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Hand in one record; waits only while the buffer is full."""
        batch = await self._producer._enqueue(topic, value, key, partition, headers, timestamp_ms, self._linger_s)
        self._tracker.follow(batch)

    async def send_many(self, topic: str, records: Iterable[tuple[Any, Any]]) -> None:
        """Hand in (key, value) pairs of one topic."""
        for key, value in records:
            await self.send(topic, value, key=key)
