"""What a quota does to a greedy client, and to others: librdkafka under a byte rate, beside a small producer.

    python -m bench.quotas --bootstrap HOST:PORT [--seconds 60] [--rate 1000000]

Any Kafka will do, so the rows of two brokers can be compared. For each of producer and consumer it reports the mean
rate in the first seconds (a full window may pass at once) and in as many seconds after them, and the latencies of a
client without a quota that sends 100 bytes with acks=all every 20 ms: alone, and beside the greedy one.
"""

import argparse
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import fencepost
from fencepost.client.admin.security_types import QuotaEntity

RECORD_BYTES = 10_000
PAUSE_SECONDS = 0.02
GREEDY = "greedy"


class Neighbour(threading.Thread):
    """A client without a quota; it notes the seconds until each acknowledgement."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": bootstrap, "client.id": "neighbour", "linger.ms": 0})
        self._topic = topic
        self._ended = threading.Event()
        self.latencies: list[float] = []

    def run(self) -> None:
        while not self._ended.wait(PAUSE_SECONDS):
            began = time.perf_counter()
            self._producer.produce(self._topic, bytes(100))
            self._producer.flush()
            self.latencies.append(time.perf_counter() - began)

    def result(self) -> dict[str, float]:
        """Stop, and return percentiles in ms."""
        self._ended.set()
        self.join()
        ordered = sorted(self.latencies)
        return {name: round(ordered[int(len(ordered) * share)] * 1000, 2) for name, share in SHARES.items()}


SHARES = {"p50": 0.5, "p99": 0.99, "max": 0.9999}


def produce_for(bootstrap: str, topic: str, seconds: float) -> Callable[[float], int]:
    """Produce without a pause. Returns how many bytes were acknowledged until a point in time."""
    done: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": GREEDY,
            "batch.size": 100_000,
            "queue.buffering.max.messages": 200,
            "request.timeout.ms": 60_000,
        }
    )
    ends = time.monotonic() + seconds
    value = os.urandom(RECORD_BYTES)
    while time.monotonic() < ends:
        try:
            producer.produce(topic, value, on_delivery=lambda error, _: done.append(time.monotonic()))
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    producer.purge()
    producer.flush(1)
    return lambda until: RECORD_BYTES * sum(at < until for at in done)


def consume_for(bootstrap: str, topic: str, seconds: float) -> Callable[[float], int]:
    """Read the topic. Returns how many bytes were read until a point in time."""
    read: list[tuple[float, int]] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": GREEDY,
            "group.id": str(uuid.uuid4()),
            "queued.max.messages.kbytes": 500,
            "fetch.message.max.bytes": 500_000,
        }
    )
    ends = time.monotonic() + seconds
    consumer.assign([TopicPartition(topic, 0, 0)])
    while time.monotonic() < ends:
        for message in consumer.consume(100, 0.05):
            read.append((time.monotonic(), len(message.value() or b"")))
    consumer.close()
    return lambda until: sum(size for at, size in read if at < until)


async def limit(bootstrap: str, **quotas: float | None) -> None:
    """Set quotas of the greedy client."""
    async with fencepost.Client(bootstrap) as kafka, kafka.admin() as admin:
        await admin.alter_client_quotas({QuotaEntity(client_id=GREEDY): quotas})


def main() -> None:
    """Measure and print one line of JSON for each row."""
    import trio

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=1e6)
    given = parser.parse_args()
    topics = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("greedy", "neighbour")]
    admin = AdminClient({"bootstrap.servers": given.bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
        made.result()
    trio.run(lambda: limit(given.bootstrap, producer_byte_rate=given.rate, consumer_byte_rate=given.rate))
    alone = Neighbour(given.bootstrap, topics[1])
    alone.start()
    time.sleep(given.seconds / 4)
    report("neighbour alone", **alone.result())
    for name, run in (("producer", produce_for), ("consumer", consume_for)):
        neighbour = Neighbour(given.bootstrap, topics[1])
        neighbour.start()
        began = time.monotonic()
        amount = run(given.bootstrap, topics[0], 2 * given.seconds)
        first, both = amount(began + given.seconds), amount(began + 2 * given.seconds)
        limited = given.seconds * given.rate
        report(name, first=round(first / limited, 3), then=round((both - first) / limited, 3), **neighbour.result())


def report(row: str, **figures: Any) -> None:
    """Print one row: shares of the allowed bytes, and latencies of the neighbour in ms."""
    print(json.dumps({"row": row} | figures), flush=True)


if __name__ == "__main__":
    main()
