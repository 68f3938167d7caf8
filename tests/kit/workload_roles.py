"""What the processes of a chaos run do, by the name of their role."""

from collections.abc import Callable
from functools import partial

import trio

from tests.kit.history import READ_COMMITTED, Place
from tests.kit.workload_readers import confluent_reader, own_reader, wire_readers
from tests.kit.workload_writers import (
    LOOSE_TOPIC,
    TRANSACTION_TOPIC,
    Task,
    confluent_loose,
    confluent_transactions,
    confluent_transform,
    own_loose,
    own_transactions,
    own_transform,
    raw_writes,
)


def _by_java(task: Task) -> None:
    from tests.kit.workload_other_clients import java_transactions  # here: it needs py4j and Java

    java_transactions(task)


def _by_kafka_python(task: Task) -> None:
    from tests.kit.workload_other_clients import kafka_python_transactions

    kafka_python_transactions(task)


WRITERS: dict[str, Callable[[Task], object]] = {
    "tv1": confluent_transactions,
    "tv2": partial(trio.run, own_transactions),
    "java": _by_java,
    "kafka-python": _by_kafka_python,
    "loose1": confluent_loose,
    "loose2": partial(trio.run, own_loose),
    "raw": raw_writes,
}
TRANSFORMS: dict[str, Callable[[Task], object]] = {
    "copy1": confluent_transform,
    "copy2": partial(trio.run, own_transform),
}
READERS = ("wire", "reads1", "reads2")


def topics() -> list[str]:
    """The run's topics: of transactions, of loose records, and one output per transform."""
    return [TRANSACTION_TOPIC, LOOSE_TOPIC, *TRANSFORMS]


def play(task: Task, role: str, places: list[Place]) -> None:
    """Be a process of this role; readers read these partitions."""
    if role == "wire":
        wire_readers(task, places)
    elif role == "reads1":
        confluent_reader(task, places, READ_COMMITTED)
    elif role == "reads2":
        trio.run(own_reader, task, places, READ_COMMITTED)
    else:
        {**WRITERS, **TRANSFORMS}[role](task)
