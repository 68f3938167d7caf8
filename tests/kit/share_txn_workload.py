"""Workers that move each record of a share group to another topic, exactly once, while brokers come and go."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Message, Producer, TopicPartition

import fencepost
from tests.kit.waiting import until

OUTPUT = "out"


class ShareTxnWorkload:
    """Produces numbers to a topic, and has workers move them to OUTPUT, which has one partition, in transactions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str) -> None:
        self._bootstrap, self._topic, self._partitions, self._group = bootstrap, topic, partitions, group
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.sent: set[bytes] = set()
        """What the brokers have acknowledged to the producer."""
        self.accepted: Counter[bytes] = Counter()
        """How often each value is in the output, for readers of committed records."""
        self.again: list[bytes] = []
        """What is there more than once."""
        self.uncertain: set[bytes] = set()
        self.refused: Counter[str] = Counter()
        """What workers began anew after, by error."""

    @contextmanager
    def running(self, members: int) -> Iterator[None]:
        """The producer, the workers and a reader of the output run until the end of the block."""
        tasks = [threading.Thread(target=self._produce), threading.Thread(target=self._read)]
        tasks += [threading.Thread(target=asyncio.run, args=(self._work(number),)) for number in range(members)]
        for task in tasks:
            task.start()
        try:
            yield
        finally:
            self._over.set()
            for task in tasks:
                task.join()

    def go_on(self, count: int, seconds: float = 60) -> None:
        """Return when that many more records are in the output."""
        enough = len(self.accepted) + count
        until(lambda: len(self.accepted) >= enough, what=f"not {count} more in the output", seconds=seconds)

    def finish(self, seconds: float = 60) -> None:
        """Return when all that was sent until now is in the output; fail if none comes for `seconds`."""
        with self._lock:
            wanted = set(self.sent)
        while left := len(wanted - self.accepted.keys()):
            until(lambda: len(wanted - self.accepted.keys()) < left, what=f"{left} records are lost", seconds=seconds)

    def _produce(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "linger.ms": 1, "enable.idempotence": True, "log_level": 0}
        )
        number = 0
        while not self._over.wait(0.02):
            if number - len(self.accepted) < 500:
                partition = number % self._partitions
                producer.produce(self._topic, b"%d" % number, partition=partition, callback=self._sent)
                number += 1
            producer.poll(0)
        producer.flush(30)

    def _sent(self, error: object, message: Message) -> None:
        value = message.value()
        if error is None and value is not None:
            with self._lock:
                self.sent.add(value)

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "reads",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(OUTPUT, 0, 0)])
        while not self._over.is_set():
            for message in consumer.consume(500, 0.2):
                value = message.value()
                if message.error() is None and value is not None:
                    self.accepted[value] += 1
                    if self.accepted[value] > 1:
                        self.again.append(value)
        consumer.close()

    async def _work(self, number: int) -> None:
        while not self._over.is_set():
            try:
                async with (
                    fencepost.Client(self._bootstrap) as kafka,
                    kafka.transactional_producer(f"worker-{number}") as producer,
                    kafka.queue(self._topic, group=self._group) as queue,
                ):
                    async for message in queue:
                        async with message, producer.transaction() as txn:
                            await txn.send(OUTPUT, message.value)
                            await txn.accept(message)
                        if self._over.is_set():
                            return
            except (fencepost.KafkaError, OSError) as error:
                self.refused[type(error).__name__] += 1
                await asyncio.sleep(0.1)
