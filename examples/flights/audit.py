"""How many records each isolation level shows at the end, counted with confluent-kafka."""

import time
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from examples.flights.dataset import FLIGHTS_PARTITIONS, FLIGHTS_TOPIC

DEADLINE_SECONDS = 120
BATCH = 10_000


class Counts(NamedTuple):
    """Records that a consumer sees in the topic."""

    read_committed: int
    read_uncommitted: int


def count(bootstrap: str) -> Counts:
    """Read the topic twice."""
    return Counts(_count(bootstrap, "read_committed"), _count(bootstrap, "read_uncommitted"))


def _count(bootstrap: str, isolation: str) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "flights-audit",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(FLIGHTS_TOPIC, number, OFFSET_BEGINNING) for number in range(FLIGHTS_PARTITIONS)])
    unfinished = set(range(FLIGHTS_PARTITIONS))
    seen = 0
    deadline = time.monotonic() + DEADLINE_SECONDS
    while unfinished:
        if time.monotonic() > deadline:
            raise TimeoutError(f"partitions {unfinished} did not come to their end")
        for message in consumer.consume(BATCH, 0.5):
            error = message.error()
            if error is None:
                seen += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise KafkaException(error)
    consumer.close()
    return seen
