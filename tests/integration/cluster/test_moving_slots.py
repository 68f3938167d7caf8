"""Slots that move while librdkafka's producers transact: no transaction has to be aborted for it."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.kit.many_brokers import BROKERS, PARTITIONS, SECONDS, ManyBrokers
from tests.kit.postgres_server import PostgresServer
from tests.kit.waiting import until

pytestmark = pytest.mark.timeout(300)
WRITES, PRODUCERS, ROUNDS = 6, 6, 2


class Transactions:
    """Producers that commit one transaction after the other, each over partitions of all brokers."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._over = threading.Event()
        self.committed = 0
        self.errors: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """They end with their first error."""
        threads = [threading.Thread(target=self._run, args=(f"mover-{number}",)) for number in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def go_on(self) -> None:
        """Return when each producer could have committed once more, or one has ended."""
        enough = self.committed + PRODUCERS
        until(lambda: self.errors or self.committed > enough)

    def _run(self, transactional_id: str) -> None:
        chance = random.Random(transactional_id)
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": transactional_id, "log_level": 0}
        )
        try:
            producer.init_transactions(SECONDS)
            while not self._over.is_set():
                producer.begin_transaction()
                for partition in chance.sample(range(PARTITIONS), WRITES):
                    producer.produce("orders", b"moved", partition=partition)
                producer.commit_transaction(SECONDS)
                self.committed += 1
        except KafkaException as error:
            self.errors.append(f"{transactional_id}: {error}")


def test_no_transaction_is_aborted_while_slots_move(server: PostgresServer, tmp_path: Path) -> None:
    """A next leader knows the end of a producer's transaction before the producer's next batch comes."""
    with ManyBrokers(tmp_path, server) as cluster:
        cluster.start_all()
        cluster.make("orders")
        work = Transactions(cluster.bootstrap)
        with work.running():
            for number in BROKERS * ROUNDS:
                for drains in (True, False):
                    cluster.engine.drain(number, drains)
                    until(cluster.shares, (set(BROKERS) - {number} if drains else set(BROKERS)).__eq__)
                    work.go_on()
        assert work.errors == []
