"""Four clients behind one small face: a transactional producer and a reader of committed data, of each library."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

import pytest

from fencepost import sync

T = TypeVar("T")
WAIT_SECONDS = 100


class Writer(Protocol):
    """A transactional producer."""

    def send(self, topic: str, *values: bytes) -> None:
        """Begin a transaction if none is open, and have these acknowledged."""
        ...

    def commit(self) -> None:
        """Commit what is open."""
        ...

    def abort(self) -> None:
        """Abort what is open."""
        ...

    def close(self) -> None:
        """Let go of the client, whatever is open."""
        ...


class Confluent:
    """confluent-kafka."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "linger.ms": 0,
                "log_level": 0,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 50,
            }
        )
        self._producer.init_transactions(WAIT_SECONDS)
        self._open = False

    def send(self, topic: str, *values: bytes) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open = True
        for value in values:
            self._producer.produce(topic, value)
        assert self._producer.flush(WAIT_SECONDS) == 0

    def commit(self) -> None:
        self._open = False
        self._producer.commit_transaction(WAIT_SECONDS)

    def abort(self) -> None:
        self._open = False
        self._producer.abort_transaction(WAIT_SECONDS)

    def close(self) -> None:
        """It has no close: the last reference goes with this object."""

    @staticmethod
    def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            return [bytes(message.value()) for message in consumer.consume(count, WAIT_SECONDS)]
        finally:
            consumer.close()


class Aiokafka:
    """aiokafka, in a loop of its own."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from aiokafka import AIOKafkaProducer

        self._runner = asyncio.Runner()

        async def start() -> Any:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id, retry_backoff_ms=20
            )
            await producer.start()
            return producer

        self._producer = self._run(start())
        self._open = False

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def with_deadline() -> T:
            async with asyncio.timeout(WAIT_SECONDS):
                return await work

        return self._runner.run(with_deadline())

    def send(self, topic: str, *values: bytes) -> None:
        async def send() -> None:
            if not self._open:
                await self._producer.begin_transaction()
                self._open = True
            for sent in [await self._producer.send(topic, value) for value in values]:
                await sent

        self._run(send())

    def commit(self) -> None:
        self._open = False
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._open = False
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._runner.close()

    @staticmethod
    def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async def read() -> list[bytes]:
            async with asyncio.timeout(WAIT_SECONDS):
                consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
                async with consumer:
                    consumer.assign([TopicPartition(topic, 0)])
                    await consumer.seek_to_beginning()
                    return [(await consumer.getone()).value for _ in range(count)]

        return asyncio.run(read())


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=50,
        )
        self._producer.init_transactions()
        self._open = False

    def send(self, topic: str, *values: bytes) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open = True
        for sent in [self._producer.send(topic, value) for value in values]:
            sent.get(WAIT_SECONDS)

    def commit(self) -> None:
        self._open = False
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._open = False
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)
        gc.collect()  # the sockets that it forgot to close are reported in the test that is to blame

    @staticmethod
    def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", consumer_timeout_ms=WAIT_SECONDS * 1000
        )
        try:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek_to_beginning()
            return [next(consumer).value for _ in range(count)]
        finally:
            consumer.close()


class Fencepost:
    """Our own, blocking."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._client = sync.Client(bootstrap, retry_backoff=0.02).__enter__()
        self._producer = self._client.transactional_producer(transactional_id).__enter__()
        self._block: sync.TransactionBlock | None = None
        self._transaction: sync.Transaction | None = None

    def send(self, topic: str, *values: bytes) -> None:
        if self._transaction is None:
            self._block = self._producer.transaction()
            self._transaction = self._block.__enter__()
        for value in values:
            self._transaction.send(topic, value)
        self._producer.flush()

    def commit(self) -> None:
        block, self._block, self._transaction = self._block, None, None
        assert block is not None
        block.__exit__(None, None, None)

    def abort(self) -> None:
        block, self._block, self._transaction = self._block, None, None
        assert block is not None
        block.__exit__(RuntimeError, RuntimeError("abort"), None)

    def close(self) -> None:
        self._client.__exit__(None, None, None)

    @staticmethod
    def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
        found: list[bytes] = []
        with (
            sync.Client(bootstrap) as client,
            client.consumer(topic, isolation="read_committed", auto_offset_reset="earliest") as consumer,
            sync.fail_after(WAIT_SECONDS),
        ):
            for batch in consumer.batches(max_records=count):
                found += [record.value for record in batch]
                if len(found) >= count:
                    return found
        raise AssertionError("batches never end")


MARKS = [
    pytest.mark.interop,
    # kafka-python leaves a socket open where a connection is refused
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]
"""Of modules that use all clients."""
CLIENTS = [
    pytest.param(Confluent, id="confluent-kafka"),
    pytest.param(Aiokafka, id="aiokafka"),
    pytest.param(KafkaPython, id="kafka-python"),
    pytest.param(Fencepost, id="fencepost"),
]
