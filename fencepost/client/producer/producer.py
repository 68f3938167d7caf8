"""The idempotent producer: every record once and in order per partition, without polling."""

from collections.abc import Iterable
from types import TracebackType
from typing import Generic, Self

import anyio
import anyio.lowlevel

from fencepost.client.background import Background
from fencepost.client.config import ProducerConfig
from fencepost.client.core.sequences import bumped
from fencepost.client.errors import KafkaError, RetriableError, code_of, error_for
from fencepost.client.facade import delegate
from fencepost.client.key_value import K, V
from fencepost.client.network.cluster import Cluster
from fencepost.client.producer.accumulator import Batch
from fencepost.client.producer.appender import BATCH_LINGER_S, Appender
from fencepost.client.producer.deliveries import Delivery, RecordMetadata, Tracker
from fencepost.client.producer.record_serializer import Headers
from fencepost.client.producer.sender import Sender
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest

NO_LIMIT = 1 << 15


class OwnIdentity:
    """Producer id and epoch of a producer without transactions; it may raise its own epoch (row P7, KIP-360)."""

    transactional_id: str | None = None
    highest_produce_version = NO_LIMIT

    def __init__(self, cluster: Cluster, background: Background) -> None:
        self._cluster = cluster
        self._background = background
        self._asking = False
        self.current: tuple[int, int] | None = None
        self.sender: Sender | None = None

    def acquire(self) -> None:
        """Request a new producer id from any broker, one request at a time (row P1)."""
        if not self._asking:
            self._asking = True
            self._background.start_soon(self._ask)

    async def _ask(self) -> None:
        retries = self._cluster.policy.loop("getting a producer id")
        assert self.sender is not None
        try:
            while self.current is None and self.sender.fatal is None:
                try:
                    self.current = await self._attempt()
                except RetriableError as error:
                    await retries.failed(error)
                except KafkaError as error:
                    self.sender.fail(error)
                    return
        finally:
            self._asking = False
            self.sender.wake()

    async def _attempt(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = await self._cluster.ask(None, request)
        if response.error_code:
            code = code_of(response.error_code)
            why = ": the user may write to no topic" if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else ""
            raise error_for(code, f"getting a producer id failed{why}", api="InitProducerId")
        return response.producer_id, response.producer_epoch

    def bump(self) -> bool:
        """Move to the next epoch; after the highest epoch the producer requests another id (row P12)."""
        assert self.current is not None
        self.current = bumped(self.current)
        return True


class Producer(Generic[K, V]):
    """An idempotent producer; open it with `async with kafka.producer(...)`.

    The end of the block waits until all records are acknowledged, and raises errors that were not read (see `flush`).
    If the block ends with an exception or a cancellation, records that were not sent yet fail and are not sent.
    """

    def __init__(self, cluster: Cluster, background: Background, config: ProducerConfig, purpose: str) -> None:
        self._cluster = cluster
        self._background = background
        self._config = config
        self._purpose = purpose
        self._appender = Appender(cluster, config)
        self._linger_s = self._appender.linger_s
        self._scope: anyio.CancelScope | None = None
        self._unattended = Tracker()

    def __repr__(self) -> str:
        return f"<Producer for {self._cluster.config.servers}>"

    async def __aenter__(self) -> Self:
        await anyio.lowlevel.checkpoint()  # first: a cancellation here has nothing to undo
        identity = OwnIdentity(self._cluster, self._background)
        accumulator = self._appender.accumulator
        identity.sender = Sender(self._cluster, accumulator, identity, self._config, self._purpose)
        self._appender.sender = identity.sender
        self._scope = self._background.start_soon(identity.sender.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            assert self._scope is not None
            self._appender.close()
            self._scope.cancel()

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until all in-sync replicas have it.

        Raises DeliveryError when `delivery_timeout` ends first (its `may_be_written` says whether the record may be in
        the log), RetriableError when there was no topic or no room for `max_block`, other KafkaErrors at once.

        A `send` that is cancelled while it waits for the topic or for room does not send the record. One that is
        cancelled later, while it waits for the acknowledgement, still delivers it once or fails at its deadline.
        `submit` separates the two: once it has returned, the record will be sent.
        """
        batch = await self._appender.enqueue(topic, value, key, partition, headers, timestamp_ms, self._linger_s)
        index = len(batch.records) - 1
        await batch.done.wait()
        return RecordMetadata(topic, batch.queue.partition.partition, *batch.place_of(index))

    async def submit(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Put one record into the buffer, waiting only for its topic and for room; returns a Delivery to wait for.

        If this is cancelled or raises, the record is not in the buffer and will not be sent. Once it has returned, no
        cancellation stops the record. An error whose Delivery was not read is raised by the next `flush`, or at the
        end of the producer's block.
        """
        batch = await self._appender.enqueue(topic, value, key, partition, headers, timestamp_ms, self._linger_s)
        return Delivery(batch, len(batch.records) - 1, self._unattended)

    def send_nowait(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """`submit` without waiting: raises WouldBlockError, without the record in the buffer, where that would wait."""
        batch = self._appender.put_nowait(topic, value, key, partition, headers, timestamp_ms, self._linger_s)
        return Delivery(batch, len(batch.records) - 1, self._unattended)

    async def send_many(
        self, topic: str, records: Iterable[tuple[K | None, V | None]], *, partition: int | None = None
    ) -> None:
        """Send (key, value) pairs of one topic and wait for all acknowledgements; raises as `batch` does."""
        async with self.batch() as batch:
            await batch.send_many(topic, records, partition=partition)

    def batch(self) -> "ProducerBatch[K, V]":
        """A context for many records at once: `async with producer.batch() as b: await b.send(...)`."""
        return ProducerBatch(self._appender)

    async def flush(self) -> None:
        """Send lingering records, and return when all records so far are acknowledged or have failed.

        Failed records of `submit` and `send_nowait` whose Delivery was not read raise here, as an ExceptionGroup of
        KafkaErrors, one for each failed batch.
        """
        await self._appender.flush()
        self._unattended.raise_errors()

    partitions_for = delegate("_appender", Appender.partitions_for)
    metrics = delegate("_appender", Appender.metrics)


class ProducerBatch(Generic[K, V]):
    """Many records: `send` waits only for buffer space; the end of the block waits for all acknowledgements.

    Failures are raised there as one ExceptionGroup of KafkaErrors (at most 100 of them), one per failed batch.
    If the block ends with an exception it does not wait, and the records are still sent.
    """

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._tracker = Tracker()
        self._last: Batch | None = None
        self._linger_s = max(BATCH_LINGER_S, appender.linger_s)

    def __repr__(self) -> str:
        return "<batch of a Producer>"

    async def __aenter__(self) -> Self:
        await anyio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._appender.accumulator.flush()
        if error is not None:
            return
        await self._tracker.wait()
        self._tracker.raise_errors()

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Send one record; waits only while the buffer is full."""
        batch = await self._appender.enqueue(topic, value, key, partition, headers, timestamp_ms, self._linger_s)
        if batch is not self._last:
            self._last = batch
            self._tracker.follow(batch)

    def send_nowait(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Send one record, or raise WouldBlockError where `send` would wait."""
        batch = self._appender.put_nowait(topic, value, key, partition, headers, timestamp_ms, self._linger_s)
        self._tracker.follow(batch)

    async def send_many(
        self, topic: str, records: Iterable[tuple[K | None, V | None]], *, partition: int | None = None
    ) -> None:
        """Send (key, value) pairs of one topic; waits only while the buffer is full."""
        await self._appender.enqueue_many(topic, records, partition, self._linger_s, self._tracker.follow)
