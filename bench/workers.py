"""What a load process does, with confluent-kafka; each has an interpreter of its own, and all start at one signal.

A job returns how much it did and the seconds it took. What belongs to the client alone is left out: reading counts from
the first record to the last, without finding the leader before and without waiting for an end that is already there.
"""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

WAIT_SECONDS = 60.0
BATCH = 10_000
POLL_SECONDS = 0.2
PROCESS_TIMEOUT_SECONDS = 600
TRANSACTIONS_BEFORE = 5


class Job(NamedTuple):
    """One process's share of a load; `amount` is how many records or transactions."""

    address: str
    topic: str
    number: int
    amount: int
    size_bytes: int
    partitions: int
    options: dict[str, Any]


def create_topic(address: str, topic: str, partitions: int) -> None:
    """Make a topic and wait for it."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 4})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_SECONDS)


def delete_topic(address: str, topic: str) -> None:
    """Give the disk back what a topic took."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 4})
    admin.delete_topics([topic])[topic].result(WAIT_SECONDS)


class Done(NamedTuple):
    """How much was done, the seconds that took, and those of each single one where the case asks for that."""

    amount: int
    seconds: float
    each: Sequence[float] = ()


def produce(job: Job, go: Callable[[], None]) -> Done:
    """Produce `amount` records and wait for every acknowledgement.

    The first record is acknowledged before the signal, and not counted: librdkafka looks for its producer id twice a
    second, and a producer that has just come waits for up to half a second by itself.
    """
    lost: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": job.address,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 200_000,
            "on_delivery": lambda error, _: lost.append(error),
            "delivery.report.only.error": True,
        }
        | job.options
    )
    value = bytes(job.size_bytes)
    producer.produce(job.topic, value, partition=0)
    producer.flush(WAIT_SECONDS)
    go()
    began = time.perf_counter()
    for number in range(1, job.amount):
        while True:
            try:
                producer.produce(job.topic, value, partition=number % job.partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(WAIT_SECONDS) or lost:
        raise RuntimeError(f"not every record was acknowledged: {lost[:3]}")
    return Done(job.amount - 1, time.perf_counter() - began)


def consume(job: Job, go: Callable[[], None]) -> Done:
    """Read the whole topic once, read_committed.

    With its default of a second, `fetch.queue.backoff.ms` has the client look away for a second whenever the
    application is slower than the broker: it would be measured and not the broker.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": job.address,
            "group.id": f"bench-{job.number}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
        | job.options
    )
    go()
    consumer.assign([TopicPartition(job.topic, number, OFFSET_BEGINNING) for number in range(job.partitions)])
    seen, began, ended = 0, 0.0, 0.0
    deadline = time.monotonic() + WAIT_SECONDS
    while seen < job.amount:
        for message in consumer.consume(1 if not seen else min(BATCH, job.amount - seen), POLL_SECONDS):
            if message.error() is not None:
                raise KafkaException(message.error())
            seen += 1
            began = began or time.perf_counter()
        ended = time.perf_counter()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{seen} records were read, {job.amount} were written")
    consumer.close()
    return Done(seen, ended - began)


def transact(job: Job, go: Callable[[], None]) -> Done:
    """`amount` transactions of ten records, one after the other; each from its begin to the end of its commit.

    Some come before the signal, unmeasured: the first waits for the leaders of its partitions.
    """
    producer = Producer(
        {"bootstrap.servers": job.address, "transactional.id": f"{job.topic}-{job.number}", "linger.ms": 0}
        | job.options
    )
    producer.init_transactions(WAIT_SECONDS)
    value = bytes(job.size_bytes)

    def one(number: int) -> None:
        producer.begin_transaction()
        for record in range(10):
            producer.produce(job.topic, value, partition=(number + record) % job.partitions)
        producer.commit_transaction(WAIT_SECONDS)

    for number in range(TRANSACTIONS_BEFORE):
        one(number)
    go()
    each = []
    began = before = time.perf_counter()
    for number in range(job.amount):
        one(number)
        now = time.perf_counter()
        each.append(now - before)
        before = now
    return Done(job.amount, before - began, each)


WORK: dict[str, Callable[[Job, Callable[[], None]], Done]] = {
    "produce": produce,
    "consume": consume,
    "transact": transact,
}


def _main(kind: str, job: Job, barrier: Any, results: Any) -> None:
    try:
        done = WORK[kind](job, lambda: barrier.wait(PROCESS_TIMEOUT_SECONDS))
        results.put((done, None))
    except Exception as error:  # noqa: BLE001 - it is handed to the parent, which raises it
        barrier.abort()
        results.put((Done(0, 0.0), f"{type(error).__name__}: {error}"))


def run(kind: str, jobs: list[Job]) -> Done:
    """Run jobs side by side; return how much was done in all, the seconds that the slowest took, and those of each."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(len(jobs) + 1), context.Queue()
    processes = [context.Process(target=_main, args=(kind, job, barrier, results)) for job in jobs]
    for process in processes:
        process.start()
    try:
        barrier.wait(PROCESS_TIMEOUT_SECONDS)
    finally:
        outcomes = [results.get(timeout=PROCESS_TIMEOUT_SECONDS) for _ in processes]
        for process in processes:
            process.join()
    problems = [problem for _, problem in outcomes if problem]
    if problems:
        raise RuntimeError("; ".join(problems))
    parts = [done for done, _ in outcomes]
    each = [seconds for done in parts for seconds in done.each]
    return Done(sum(done.amount for done in parts), max(done.seconds for done in parts), each)
