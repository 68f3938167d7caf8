"""The cases: what is loaded, and which numbers come out of one run against one broker."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench import workers
from bench.raw import RawProducer
from bench.target import Target
from bench.workers import Job

WARM_UP_REQUESTS = 300
Result = dict[str, float]
"""Metric -> value of one run."""

CPU = "broker CPU s per million records"
RECORDS = "records/s"
ACKS = "acks/s"
TRANSACTIONS = "transactions/s"
P50, P99 = "ms p50", "ms p99"
LESS_IS_BETTER = {CPU, P50, P99, "ms to the first ack", "MiB"}


@dataclass(frozen=True)
class Case:
    """A name for the table, and the run."""

    name: str
    run: Callable[[Target, float], Result]


def _topic(target: Target, partitions: int) -> str:
    topic = f"bench-{os.urandom(4).hex()}"
    workers.create_topic(target.address, topic, partitions)
    return topic


def _loaded(target: Target, kind: str, jobs: list[Job], unit: str) -> Result:
    before = target.cpu_seconds()
    done, elapsed = workers.run(kind, jobs)
    after = target.cpu_seconds()
    result = {unit: done / elapsed}
    if before is not None and after is not None:
        per = CPU if unit == RECORDS else f"broker CPU ms per {unit.removesuffix('s/s')}"
        result[per] = (after - before) / done * (1e6 if unit == RECORDS else 1e3)
    return result


def produce(size_bytes: int, partitions: int, records: int, codec: str = "none") -> Callable[[Target, float], Result]:
    """Two processes produce with confluent-kafka's default batches."""

    def run(target: Target, scale: float) -> Result:
        topic = _topic(target, partitions)
        share = int(records * scale) // 2
        options = {"compression.type": codec}
        jobs = [Job(target.address, topic, number, share, size_bytes, partitions, options) for number in range(2)]
        return _loaded(target, "produce", jobs, RECORDS)

    return run


def consume(size_bytes: int, partitions: int, records: int) -> Callable[[Target, float], Result]:
    """One process reads what was written before, read_committed."""

    def run(target: Target, scale: float) -> Result:
        topic = _topic(target, partitions)
        count = int(records * scale)
        job = Job(target.address, topic, 0, count, size_bytes, partitions, {})
        workers.run("produce", [job])
        return _loaded(target, "consume", [job], RECORDS)

    return run


def transactions(producers: int, count: int, partitions: int = 8) -> Callable[[Target, float], Result]:
    """Producer processes side by side, each commits transactions of ten records of 100 bytes."""

    def run(target: Target, scale: float) -> Result:
        topic = _topic(target, partitions)
        share = max(10, int(count * scale) // producers)
        jobs = [Job(target.address, topic, number, share, 100, partitions, {}) for number in range(producers)]
        return _loaded(target, "transact", jobs, TRANSACTIONS)

    return run


def one_at_a_time(requests: int, size_bytes: int = 100) -> Callable[[Target, float], Result]:
    """One connection; the next request leaves when the last one is acknowledged (acks=all)."""

    def run(target: Target, scale: float) -> Result:
        producer = RawProducer(target.address, _topic(target, 1), size_bytes)
        for _ in range(WARM_UP_REQUESTS):
            producer.produce()
        times = []
        started = time.perf_counter()
        for _ in range(int(requests * scale)):
            sent = time.perf_counter()
            code = producer.produce()
            times.append(time.perf_counter() - sent)
            if code:
                raise RuntimeError(f"produce was answered with error {code}")
        elapsed = time.perf_counter() - started
        producer.close()
        times.sort()
        return {
            ACKS: len(times) / elapsed,
            P50: times[len(times) // 2] * 1e3,
            P99: times[len(times) * 99 // 100] * 1e3,
        }

    return run


def memory(target: Target, scale: float) -> Result:
    """What the broker holds after everything before."""
    held = target.rss_bytes()
    return {} if held is None else {"MiB": held / 2**20}


CASES = [
    Case("acknowledgements, one at a time, 100 B", one_at_a_time(5000)),
    Case("produce 100 B, 1 partition", produce(100, 1, 1_000_000)),
    Case("produce 100 B, 8 partitions", produce(100, 8, 1_000_000)),
    Case("produce 1 KiB, 8 partitions", produce(1024, 8, 200_000)),
    Case("produce 1 KiB, 8 partitions, lz4", produce(1024, 8, 200_000, "lz4")),
    Case("consume 100 B, 8 partitions", consume(100, 8, 1_000_000)),
    Case("consume 1 KiB, 8 partitions", consume(1024, 8, 200_000)),
    Case("transactions of 10 records, 1 producer", transactions(1, 500)),
    Case("transactions of 10 records, 8 producers", transactions(8, 2400)),
    Case("memory after all this", memory),
]


def warm_up(target: Target, scale: float) -> None:
    """A little of everything, unmeasured: what compiles or allocates on first use has then done so."""
    for load in (
        produce(100, 8, 300_000),
        produce(1024, 8, 100_000, "lz4"),
        consume(1024, 8, 100_000),
        transactions(4, 400),
    ):
        load(target, scale)


def start_up(start: Callable[[], Target], stop: Callable[[], None]) -> Result:
    """From the start of the process to the first acknowledged record of a new topic."""
    started = time.perf_counter()
    target = start()
    producer = RawProducer(target.address, "bench-start-up", 100)
    while producer.produce() != 0:  # until the topic that the first request could not find has been made
        workers.create_topic(target.address, "bench-start-up", 1)
    elapsed = time.perf_counter() - started
    producer.close()
    stop()
    return {"ms to the first ack": elapsed * 1e3}
