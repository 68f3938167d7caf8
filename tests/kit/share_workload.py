"""Members of a share group that accept each record they get, while brokers come and go."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException, Message, Producer, ShareConsumer

from tests.kit.waiting import until

Place = tuple[int, int]
"""Partition and offset."""


class ShareWorkload:
    """Produces numbers to all partitions of a topic, and has the members of a group accept them."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str = "workers") -> None:
        self._bootstrap, self._topic, self._partitions, self._group = bootstrap, topic, partitions, group
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.sent: set[Place] = set()
        """What the brokers have acknowledged to the producer."""
        self.accepted: Counter[Place] = Counter()
        """How often the brokers have confirmed that a record is accepted."""
        self.delivered: Counter[Place] = Counter()
        self.again: list[Place] = []
        """Records that were delivered though they were accepted before."""
        self.uncertain: set[Place] = set()
        """Records whose acceptance was not answered: the brokers may have stored it."""
        self.refused: Counter[str] = Counter()
        """Acknowledgements that were refused, by error."""

    @contextmanager
    def running(self, members: int) -> Iterator[None]:
        """The producer and the members run until the end of the block."""
        tasks = [threading.Thread(target=self._produce)]
        tasks += [threading.Thread(target=self._accept, args=(number,)) for number in range(members)]
        for task in tasks:
            task.start()
        try:
            yield
        finally:
            self._over.set()
            for task in tasks:
                task.join()

    def go_on(self, count: int, seconds: float = 60) -> None:
        """Return when that many more records are accepted."""
        enough = len(self.accepted) + count
        until(lambda: len(self.accepted) >= enough, what=f"not {count} more accepted: {self.left()}", seconds=seconds)

    def left(self) -> set[Place]:
        """What was sent, and is neither accepted nor perhaps so."""
        with self._lock:
            return self.sent - self.accepted.keys() - self.uncertain

    def finish(self, seconds: float = 60) -> None:
        """Return when all that was sent until now is accepted."""
        with self._lock:
            wanted = set(self.sent)
        while left := len(wanted & self.left()):
            until(lambda: len(wanted & self.left()) < left, what=f"{left} records are lost", seconds=seconds)

    def _produce(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "linger.ms": 1, "enable.idempotence": True, "log_level": 0}
        )
        number = 0
        while not self._over.wait(0.01):
            try:
                for partition in range(self._partitions):
                    producer.produce(self._topic, b"%d" % number, partition=partition, callback=self._sent)
            except BufferError:
                producer.poll(0.1)  # no broker takes them now
            number += 1
            producer.poll(0)
        producer.flush(30)

    def _sent(self, error: object, message: Message) -> None:
        if error is None:
            with self._lock:
                self.sent.add(place_of(message))

    def _accept(self, number: int) -> None:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group,
                "client.id": f"member-{number}",
                "share.acknowledgement.mode": "explicit",
                "log_level": 0,
            }
        )
        consumer.subscribe([self._topic])
        while not self._over.is_set():
            self._round(consumer)
        consumer.close()

    def _round(self, consumer: ShareConsumer) -> None:
        messages = [message for message in consumer.poll(0.5) if message.error() is None]
        places = [place_of(message) for message in messages]
        with self._lock:
            self.delivered.update(places)
            self.again += [place for place in places if place in self.accepted]
        if not messages:
            return
        for message in messages:
            consumer.acknowledge(message)
        try:
            results = {tp.partition: error for tp, error in consumer.commit_sync(30).items()}
        except KafkaException as error:
            results = dict.fromkeys(range(self._partitions), error)
        with self._lock:
            for place in places:
                error = results[place[0]]
                if error is None:
                    self.accepted[place] += 1
                    continue
                self.refused[error.args[0].name()] += 1
                if error.args[0].code() < 0:  # of the client, which has no answer
                    self.uncertain.add(place)


def place_of(message: Message) -> Place:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset
