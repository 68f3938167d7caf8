"""Clients that work on a topic while its partitions move between cores, and what must be read afterwards."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Assigned

from fencepost.sync import Client
from tests.kit.cores_broker import Cores
from tests.kit.waiting import until

PARTITIONS = 3
STALLED_SECONDS = 60.0
"""Without a further record, though not all have been read: a slow machine needs longer for all of them."""
GROUP_ID, TRANSACTIONAL_ID = "readers", "mover"


class Load:
    """Clients that work until they are stopped, each in a thread."""

    def __init__(self, address: str, topic: str) -> None:
        self.address, self.topic = address, topic
        self.stopped = threading.Event()
        self.acknowledged: list[bytes] = []
        self.committed: list[bytes] = []
        self.read: list[tuple[int, int]] = []
        """Partition and offset of each record that the group was given, in order."""
        self.accepted: Counter[bytes] = Counter()

    def produce(self) -> None:
        """Idempotent, by librdkafka."""
        producer = Producer({"bootstrap.servers": self.address, "enable.idempotence": True, "linger.ms": 1})
        number = 0

        def delivered(error: KafkaError | None, message: Any) -> None:
            assert error is None, error
            self.acknowledged.append(message.value())

        while not self.stopped.is_set():
            producer.produce(self.topic, b"c-%d" % number, partition=number % PARTITIONS, on_delivery=delivered)
            number += 1
            if number % 20 == 0:
                producer.poll(0.005)
        assert producer.flush(60) == 0

    def produce_by_own(self) -> None:
        number = 0
        with Client(self.address) as kafka, kafka.producer() as producer:
            while not self.stopped.is_set():
                value = b"o-%d" % number
                producer.send(self.topic, value, partition=number % PARTITIONS)
                self.acknowledged.append(value)
                number += 1

    def transact(self) -> None:
        """Each transaction writes to all partitions, by librdkafka; one of four is aborted."""
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": TRANSACTIONAL_ID})
        retried(producer.init_transactions)
        number = 0
        while not self.stopped.is_set():
            values = [b"t-%d-%d" % (number, partition) for partition in range(PARTITIONS)]
            producer.begin_transaction()
            for partition, value in enumerate(values):
                producer.produce(self.topic, value, partition=partition)
            if number % 4 == 3:
                retried(producer.abort_transaction)
            else:
                retried(producer.commit_transaction)
                self.committed += values
            number += 1

    def transact_by_own(self) -> None:
        number = 0
        with Client(self.address) as kafka, kafka.transactional_producer(f"{TRANSACTIONAL_ID}-own") as producer:
            while not self.stopped.is_set():
                values = [b"w-%d-%d" % (number, partition) for partition in range(PARTITIONS)]
                with producer.transaction() as txn:
                    for partition, value in enumerate(values):
                        txn.send(self.topic, value, partition=partition)
                self.committed += values
                number += 1

    def consume(self) -> None:
        """In a group that commits."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": GROUP_ID,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self.topic])
        while not self.stopped.is_set():
            for message in consumer.consume(500, 0.2):
                if not message.error():
                    self.read.append((message.partition(), message.offset()))
            with suppress(
                KafkaException
            ):  # nothing to commit yet, or a coordinator that moves: the next commit has all
                consumer.commit(asynchronous=False)
        consumer.close()

    def share(self) -> None:
        """A member of a share group accepts each message."""
        with Client(self.address) as kafka, kafka.queue(self.topic, group="sharing") as queue:
            for message in queue:
                message.accept()
                assert message.value is not None
                self.accepted[message.value] += 1
                if self.stopped.is_set():
                    break

    def run(self, moves: Callable[[], None], *clients: Callable[[], None]) -> None:
        """Move while clients work. What fails in any of them fails here."""
        with ThreadPoolExecutor() as pool:
            working = [pool.submit(client) for client in clients]
            try:
                until(lambda: self.acknowledged)
                moves()
            finally:
                self.stopped.set()
            for one in working:
                one.result(120)

    def check(self, cores: Cores) -> None:
        """Every acknowledged record once, and of transactions the committed ones; each producer's in order."""
        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": "check", "isolation.level": "read_committed"}
        )
        consumer.assign([Assigned(self.topic, number, 0) for number in range(PARTITIONS)])
        expected = Counter(self.acknowledged) + Counter(self.committed)
        found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        deadline = time.monotonic() + STALLED_SECONDS
        while sum(map(len, found)) < expected.total() and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.5):
                if not message.error():
                    found[message.partition()].append(message.value())
                    deadline = time.monotonic() + STALLED_SECONDS
        consumer.close()
        read = Counter(value for values in found for value in values)
        assert not expected - read, "lost"
        assert not read - expected, "doubled, or of no committed transaction"
        for values in found:
            for kind in {value[:1] for value in values}:
                numbers = [int(value.split(b"-")[1]) for value in values if value[:1] == kind]
                assert numbers == sorted(numbers), kind


def retried(call: Callable[[float], None]) -> None:
    """As programs of librdkafka have to."""
    for _ in range(20):
        try:
            call(20)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return
    raise AssertionError(f"{call} was tried in vain")
