"""What works on a cluster while its database fails over: producers of librdkafka, and what they were told."""

import logging
import random
import threading
import time
from bisect import bisect
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from confluent_kafka import KafkaException, Producer

from tests.kit.failover_check import Fate, Sent, Transaction
from tests.kit.history import Place

PATIENCE_S = 8.0
TRANSACTION_TIMEOUT_MS = 4000
SILENT = logging.getLogger("tests.kit.failover_load")
"""librdkafka logs here: producers may meet fatal errors, as the database loses their epochs and sequences."""
SILENT.propagate = False
SILENT.addHandler(logging.NullHandler())
PADDING = 600
"""Bytes of a record at most: so some rounds are inline, and others have an object."""


class Load:
    """A context manager: producers that work until its end. Transactions are for one topic, other records for another.

    New transactions, and other records, go to `allowed` partitions only.
    """

    def __init__(self, bootstrap: str, topics: tuple[str, str], partitions: int, seed: str) -> None:
        self._promotions: list[float] = []
        self.sent: list[Sent] = []
        self.transactions: list[Transaction] = []
        self.allowed: Sequence[int] = range(partitions)
        self.gave_up = 0
        """Producers that met a fatal error, and were replaced."""
        self.problems: list[str] = []
        """Why producers ended for good."""
        self._bootstrap = bootstrap
        self._in_transactions, self._loose = topics
        self._seed = seed
        self._stopping = threading.Event()
        self._numbers = count()
        work: list[tuple[str, Callable[[str], None]]] = [
            ("txn-1", self._transactions),
            ("txn-2", self._transactions),
            ("idempotent", self._idempotent),
            ("plain", self._plain),
        ]
        self._threads = [threading.Thread(target=self._run, args=(name, run), daemon=True) for name, run in work]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all producers, and wait for what they know."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def promoted(self) -> None:
        """From now on answers belong to the next era."""
        self._promotions.append(time.monotonic())

    def _era(self, moment: float) -> int:
        return bisect(self._promotions, moment)

    def acknowledged(self) -> int:
        """The number of records that were acknowledged."""
        return sum(one.offset is not None for one in self.sent)

    def answers(self) -> int:
        """The number of records and transactions with a known end."""
        return self.acknowledged() + sum(one.fate in (Fate.COMMITTED, Fate.ABORTED) for one in self.transactions)

    def probe(self, places: Sequence[Place], seconds: float) -> list[Place]:
        """Write one record to each partition, again until it is acknowledged; returns those that took none in time."""
        producer = self._producer({"enable.idempotence": False, "retries": 0, "message.timeout.ms": 2000})
        open_, deadline = {place: self._send(producer, place, "probe") for place in places}, time.monotonic() + seconds
        while open_ and time.monotonic() < deadline:
            producer.flush(0.2)
            for place, one in list(open_.items()):
                if one.offset is not None:
                    del open_[place]
                elif len(producer) == 0:
                    open_[place] = self._send(producer, place, "probe")
        producer.flush(2)
        return [place for place, one in open_.items() if one.offset is None]

    def _producer(self, settings: dict[str, Any]) -> Producer:
        quick = {"topic.metadata.refresh.interval.ms": 1000, "reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50}
        shared = {"bootstrap.servers": self._bootstrap, "acks": "all", "linger.ms": 5}
        return Producer({**shared, **quick, **settings}, logger=SILENT)

    def _send(self, producer: Producer, place: Place, name: str, size: int = 0) -> Sent:
        one = Sent(place, f"{name}.{next(self._numbers)}.{'x' * size}")
        self.sent.append(one)
        began = time.monotonic()

        def told(error: Any, message: Any) -> None:
            if error is None:  # this thread may learn late what librdkafka knew earlier
                one.era, one.offset = self._era(began + message.latency()), message.offset()

        producer.produce(place[0], one.value.encode(), partition=place[1], on_delivery=told)
        return one

    def _run(self, name: str, work: Callable[[str], None]) -> None:
        try:
            work(name)
        except (KafkaException, BufferError, RuntimeError) as error:
            self.problems.append(f"{name}: {error!r}")

    def _place(self, producer: Producer, topic: str, chance: random.Random) -> Place:
        """An allowed partition, as soon as there is one. Meanwhile answers are heard, so that each has its era."""
        while not (allowed := self.allowed) and not self._stopping.is_set():
            producer.poll(0.01)
        return topic, chance.choice(allowed or (0,))

    def _idempotent(self, name: str) -> None:
        # With more requests in flight librdkafka may write a record twice when a leader changes (issue 4953).
        self._loosely(name, {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1})

    def _plain(self, name: str) -> None:
        self._loosely(name, {"enable.idempotence": False, "retries": 0, "message.timeout.ms": 3000})

    def _loosely(self, name: str, settings: dict[str, Any]) -> None:
        chance = random.Random(f"{self._seed}/{name}")
        while not self._stopping.is_set():
            failed = threading.Event()
            producer = self._producer(
                settings | {"error_cb": lambda error, failed=failed: error.fatal() and failed.set()}
            )
            while not self._stopping.is_set() and not failed.is_set():
                try:
                    self._send(producer, self._place(producer, self._loose, chance), name, chance.randrange(PADDING))
                    producer.poll(chance.uniform(0.002, 0.03))
                except (KafkaException, BufferError, SystemError):
                    break  # the producer can do nothing more
            # After a fatal error confluent-kafka may raise SystemError from a callback.
            with suppress(KafkaException, SystemError):
                producer.flush(PATIENCE_S)
            self.gave_up += not self._stopping.is_set()

    def _transactions(self, name: str) -> None:
        chance = random.Random(f"{self._seed}/{name}")
        settings = {"transactional.id": f"{self._seed}-{name}", "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        while not self._stopping.is_set():
            producer = self._producer(settings)
            with suppress(KafkaException):
                producer.init_transactions(PATIENCE_S)
                while not self._stopping.is_set():
                    self._one_transaction(producer, name, chance)
            self.gave_up += not self._stopping.is_set()

    def _one_transaction(self, producer: Producer, name: str, chance: random.Random) -> None:
        """Raises KafkaException if the producer can do nothing more."""
        first = self._place(producer, self._in_transactions, chance)
        producer.begin_transaction()
        one = Transaction(f"{name} transaction {len(self.transactions)}")
        self.transactions.append(one)
        try:
            others = [(first[0], chance.choice(self.allowed or (first[1],))) for _ in range(chance.randint(1, 5))]
            for place in (first, *others):
                one.sent.append(self._send(producer, place, name, chance.randrange(PADDING)))
                producer.poll(chance.uniform(0, 0.02))
            if chance.random() < 0.1:
                producer.abort_transaction(PATIENCE_S)
                one.fate = Fate.ABORTED
                return
            one.fate = Fate.UNKNOWN
            producer.commit_transaction(PATIENCE_S)
            one.fate, one.era = Fate.COMMITTED, self._era(time.monotonic())
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(PATIENCE_S)
            one.fate = Fate.ABORTED
