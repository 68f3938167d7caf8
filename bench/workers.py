"""What a load process does, with confluent-kafka; each has an interpreter of its own, and all start at one signal."""

import multiprocessing
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

WAIT_SECONDS = 60.0
BATCH = 10_000
PROCESS_TIMEOUT_SECONDS = 600


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
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_SECONDS)


def produce(job: Job, go: Callable[[], None]) -> int:
    """Produce `amount` records and wait for every acknowledgement."""
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
    producer.list_topics(job.topic, WAIT_SECONDS)
    go()
    for number in range(job.amount):
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
    return job.amount


def consume(job: Job, go: Callable[[], None]) -> int:
    """Read the whole topic once, read_committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": job.address,
            "group.id": f"bench-{job.number}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
        | job.options
    )
    go()
    consumer.assign([TopicPartition(job.topic, number, OFFSET_BEGINNING) for number in range(job.partitions)])
    unfinished, seen = set(range(job.partitions)), 0
    while unfinished:
        for message in consumer.consume(BATCH, 0.2):
            error = message.error()
            if error is None:
                seen += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise KafkaException(error)
    consumer.close()
    if seen != job.amount:
        raise RuntimeError(f"{seen} records were read, {job.amount} were written")
    return seen


def transact(job: Job, go: Callable[[], None]) -> int:
    """`amount` transactions of ten records, one after the other."""
    producer = Producer(
        {"bootstrap.servers": job.address, "transactional.id": f"{job.topic}-{job.number}", "linger.ms": 0}
        | job.options
    )
    producer.init_transactions(WAIT_SECONDS)
    value = bytes(job.size_bytes)
    go()
    for number in range(job.amount):
        producer.begin_transaction()
        for record in range(10):
            producer.produce(job.topic, value, partition=(number + record) % job.partitions)
        producer.commit_transaction(WAIT_SECONDS)
    return job.amount


WORK: dict[str, Callable[[Job, Callable[[], None]], int]] = {
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
        results.put((0, f"{type(error).__name__}: {error}"))


def run(kind: str, jobs: list[Job]) -> tuple[int, float]:
    """Run jobs side by side; return how much was done, and the seconds from the common start to the last end."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(len(jobs) + 1), context.Queue()
    processes = [context.Process(target=_main, args=(kind, job, barrier, results)) for job in jobs]
    for process in processes:
        process.start()
    try:
        barrier.wait(PROCESS_TIMEOUT_SECONDS)
    finally:
        started = time.perf_counter()
        outcomes = [results.get(timeout=PROCESS_TIMEOUT_SECONDS) for _ in processes]
        elapsed = time.perf_counter() - started
        for process in processes:
            process.join()
    problems = [problem for _, problem in outcomes if problem]
    if problems:
        raise RuntimeError("; ".join(problems))
    return sum(done for done, _ in outcomes), elapsed
