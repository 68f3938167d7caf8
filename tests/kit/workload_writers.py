"""The writing processes of a chaos run: librdkafka (TV1) and the project's own client (TV2), each with its journal."""

import random
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import fencepost
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from tests.kit.history import Journal
from tests.kit.leaders import Leaders
from tests.kit.wire import ConnectionEnded

FENCED = 3
"""Exit code of a producer that cannot go on; the run starts its next incarnation."""
GAVE_UP = "gives up:"
"""What it says before."""
WAIT_SECONDS = 20.0
TRANSACTION_TOPIC, LOOSE_TOPIC = "t", "in"
TRIMMED_TOPICS = RETAINED_TOPIC, COMPACTED_TOPIC = "retained", "compacted"
TRIMMED = "trimmed"
"""Folder of the journals of what was written to TRIMMED_TOPICS: those records need not stay."""
_PRELOADED = (fencepost.Consumer, fencepost.Producer, fencepost.TransactionalProducer)
"""Imported before the run forks, so that its processes start at once."""
_PATIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 0}


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one process is to do. `name` is its transactional id, `label` that of its incarnation."""

    address: str
    name: str
    label: str
    seed: str
    partitions: int
    timeout_ms: int
    target: str = ""
    journal: Path

    @property
    def random(self) -> random.Random:
        """The same for the same seed."""
        return random.Random(f"{self.seed}/{self.label}")


class _Given(Exception):
    """The program gives its transaction up."""


@dataclass(frozen=True)
class _Plan:
    """One transaction: what to write, with a rest after each record, and how to end."""

    records: list[tuple[int, str, float]]
    commit: bool


def plans_of(task: Task) -> Iterator[tuple[int, _Plan]]:
    """Transactions without end: most are short and commit, some abort, some stand open beyond their timeout."""
    chance = task.random
    number = sent = 0
    while True:
        number += 1
        slow = chance.random() < 0.03
        records = []
        for _ in range(chance.choice((1, 2, 2, 3, 5, 8, 13))):
            sent += 1
            rest = chance.uniform(0, 0.01) if chance.random() < 0.3 else 0.0
            records.append((chance.randrange(task.partitions), f"{task.label}.{number}.{sent}", rest))
        if slow:
            place, value, _ = records[-1]
            records[-1] = (place, value, task.timeout_ms / 1000 * chance.uniform(0.5, 1.6))
        yield number, _Plan(records, chance.random() < 0.8)


def _loose_places(task: Task) -> Iterator[tuple[str, int, str]]:
    """Topic, partition and value of records without transaction, without end."""
    chance = random.Random(f"{task.seed}/{task.label}/places")
    for number in count():
        topic = TRANSACTION_TOPIC if chance.random() < 0.2 else LOOSE_TOPIC
        yield topic, chance.randrange(task.partitions), f"{task.label}.{number}"


def give_up(error: object) -> NoReturn:
    """End the process of a producer that cannot go on."""
    print(f"{time.monotonic():.3f} {GAVE_UP} {error!r}", file=sys.stderr, flush=True)
    raise SystemExit(FENCED)


# librdkafka


def _settle(step: Any, *arguments: Any) -> None:
    """Repeat a step of a transaction for as long as the library says that this is right."""
    while True:
        try:
            step(*arguments, WAIT_SECONDS)
            return
        except KafkaException as failed:
            error = failed.args[0]
            if error.retriable() and not error.txn_requires_abort():
                continue
            raise


def _undo(producer: Producer, error: KafkaException) -> None:
    """Abort where that is what the error asks for; anything worse ends the process."""
    if not error.args[0].txn_requires_abort():
        give_up(error)
    try:
        _settle(producer.abort_transaction)
    except KafkaException as worse:
        give_up(worse)


def _confluent_producer(task: Task, **more: Any) -> Producer:
    return Producer({"bootstrap.servers": task.address, "linger.ms": 1, **_PATIENT, **more})


def _confluent_transactional(task: Task) -> Producer:
    ids = {"transactional.id": task.name, "transaction.timeout.ms": task.timeout_ms}
    producer = _confluent_producer(task, **ids)
    try:
        _settle(producer.init_transactions)
    except KafkaException as error:
        give_up(error)
    return producer


def confluent_transactions(task: Task) -> None:
    """Transactions over several partitions, TV1."""
    journal, producer = Journal(task.journal), _confluent_transactional(task)
    for number, plan in plans_of(task):
        journal.write("begin", number)
        try:
            producer.begin_transaction()
            for partition, value, rest in plan.records:
                journal.write("send", number, TRANSACTION_TOPIC, partition, value)
                producer.produce(TRANSACTION_TOPIC, value.encode(), partition=partition)
                producer.poll(0)
                if rest:
                    time.sleep(rest)
            if plan.commit:
                journal.write("ask", number)
                _settle(producer.commit_transaction)
                journal.write("committed", number)
            else:
                _settle(producer.abort_transaction)
                journal.write("aborted", number)
        except KafkaException as error:
            _undo(producer, error)
            journal.write("aborted", number)


def confluent_loose(task: Task) -> None:
    """Idempotent writes without transactions, to the transactions' topic and to the transforms' input."""
    journal, chance = Journal(task.journal), task.random
    more: dict[str, Any] = {"enable.idempotence": True}
    if "," in task.address:
        # With several requests in flight it writes records twice when a partition changes its leader, with Kafka as
        # well: https://github.com/confluentinc/librdkafka/issues/4953
        more["max.in.flight.requests.per.connection"] = 1
    producer = _confluent_producer(task, **more)

    def told(error: Any, message: Any) -> None:
        if error is None:
            # It does not know the offset of a batch that the broker had already.
            offset = -1 if message.offset() is None else message.offset()
            journal.write("ack", message.value().decode(), message.partition(), offset)

    for topic, partition, value in _loose_places(task):
        journal.write("send", None, topic, partition, value)
        producer.produce(topic, value.encode(), partition=partition, on_delivery=told)
        producer.poll(0)
        if len(producer) > 200 or chance.random() < 0.2:
            producer.poll(0.02)


def _membership(task: Task) -> dict[str, Any]:
    """The first member of a group is static: its successor takes its place at once. The others come and go."""
    if task.name.endswith("-0"):
        return {"group.instance.id": task.name, "session.timeout.ms": 30_000}
    return {"session.timeout.ms": 6000}


def confluent_transform(task: Task) -> None:
    """Read, write the same to `target`, commit the offsets in the transaction: exactly once, TV1."""
    consumer = Consumer(
        {
            "bootstrap.servers": task.address,
            "group.id": task.target,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **_membership(task),
            **_PATIENT,
        }
    )
    consumer.subscribe([LOOSE_TOPIC])
    producer = _confluent_transactional(task)
    while True:
        records = consumer.consume(200, 0.1)
        for error in [record.error() for record in records if record.error() is not None]:
            if error.code() == KafkaError._FATAL:
                give_up(KafkaException(error))  # another one has our place in the group
        records = [record for record in records if record.error() is None]
        if not records:
            continue
        ends = {record.partition(): record.offset() + 1 for record in records}
        try:
            producer.begin_transaction()
            for record in records:
                producer.produce(task.target, record.value(), partition=record.partition())
            offsets = [TopicPartition(LOOSE_TOPIC, partition, end) for partition, end in ends.items()]
            _settle(producer.send_offsets_to_transaction, offsets, consumer.consumer_group_metadata())
            _settle(producer.commit_transaction)
        except KafkaException as error:
            _undo(producer, error)
            give_up(error)  # the next incarnation begins at the committed offsets


# Without a client


def raw_writes(task: Task) -> None:
    """Batches without producer id, each sent once: what no answer came for may be there or not. Beside the loose topic
    they go to topics that lose their old records (retention) and their overwritten ones (compaction).
    """
    chance = task.random
    beside = task.journal.parent.with_name(TRIMMED)
    journals = {LOOSE_TOPIC: Journal(task.journal)}
    journals |= {topic: Journal(beside / f"{topic}-{task.label}.jsonl") for topic in TRIMMED_TOPICS}
    number = 0
    while True:
        try:
            with Leaders(task.address) as leaders:
                while True:
                    number += 1
                    topic = chance.choice((LOOSE_TOPIC, *TRIMMED_TOPICS))
                    _write_raw(leaders, task, journals[topic], topic, number)
                    time.sleep(chance.uniform(0, 0.01))
        except (OSError, ConnectionEnded):
            time.sleep(0.02)


def _write_raw(leaders: Leaders, task: Task, journal: Journal, topic: str, number: int) -> None:
    partition = number % (task.partitions if topic == LOOSE_TOPIC else 1)
    wire = leaders.of(topic, partition)
    values = [f"{task.label}.{number}.{index}" for index in range(1 + number % 4)]
    journal.write_many(["send", None, topic, partition, value] for value in values)
    now_ms = int(time.time() * 1000)
    records = [(now_ms, key_of(value), value.encode(), ()) for value in values]
    answer = wire.produce(topic, build_batch(records), partition=partition)
    if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:  # its log is opened after a start
        time.sleep(0.02)
        return
    if answer.error_code != ErrorCode.NONE:
        raise ValueError(f"{topic}-{partition}: {ErrorCode(answer.error_code).name}")
    journal.write_many(["ack", value, partition, answer.base_offset + index] for index, value in enumerate(values))


def key_of(value: str) -> bytes:
    """The key of a record of `raw_writes`: some hundred keys in all."""
    return b"key-%d" % (zlib.crc32(value.encode()) % 200)


# The project's own client


@contextmanager
def _fences_are_final() -> Iterator[None]:
    """A fenced producer ends its process, inside groups, too."""
    try:
        yield
    except fencepost.KafkaError as error:
        give_up(error)
    except BaseExceptionGroup as group:
        if group.split(fencepost.KafkaError)[1] is not None:
            raise
        give_up(group)


async def own_transactions(task: Task) -> None:
    """Transactions over several partitions, TV2."""
    journal = Journal(task.journal)
    with _fences_are_final():
        async with (
            fencepost.Client(task.address) as kafka,
            kafka.transactional_producer(task.name, transaction_timeout=task.timeout_ms / 1000) as producer,
        ):
            for number, plan in plans_of(task):
                journal.write("begin", number)
                try:
                    async with producer.transaction() as txn:
                        for partition, value, rest in plan.records:
                            journal.write("send", number, TRANSACTION_TOPIC, partition, value)
                            await txn.send(TRANSACTION_TOPIC, value.encode(), partition=partition)
                            if rest:
                                await trio.sleep(rest)
                        if not plan.commit:
                            raise _Given
                        journal.write("ask", number)
                    journal.write("committed", number)
                except (_Given, fencepost.AbortableError):
                    journal.write("aborted", number)
                except fencepost.OutcomeUnknownError:
                    await producer.reinitialise()


async def own_loose(task: Task) -> None:
    """Idempotent writes without transactions, some alone and some in batches."""
    journal, chance = Journal(task.journal), task.random
    places = _loose_places(task)
    with _fences_are_final():
        async with fencepost.Client(task.address) as kafka, kafka.producer() as producer:
            while True:
                if chance.random() < 0.5:
                    topic, partition, value = next(places)
                    journal.write("send", None, topic, partition, value)
                    told = await producer.send(topic, value.encode(), partition=partition)
                    journal.write("ack", value, told.partition, told.offset)
                    continue
                some = [next(places) for _ in range(chance.randint(2, 30))]
                async with producer.batch() as batch:
                    for topic, partition, value in some:
                        journal.write("send", None, topic, partition, value)
                        await batch.send(topic, value.encode(), partition=partition)
                journal.write_many(["ack", value, partition, -1] for _, partition, value in some)
                await trio.sleep(chance.uniform(0, 0.05))


async def own_transform(task: Task) -> None:
    """Read, write the same to `target`, commit the offsets in the transaction: exactly once, TV2."""
    membership = _membership(task)
    with _fences_are_final():
        async with (
            fencepost.Client(task.address) as kafka,
            kafka.consumer(
                LOOSE_TOPIC,
                group=task.target,
                group_instance_id=membership.get("group.instance.id"),
                session_timeout=membership["session.timeout.ms"] / 1000,
            ) as consumer,
            kafka.transactional_producer(task.name, transaction_timeout=task.timeout_ms / 1000) as producer,
        ):
            async for batch in consumer.batches(200):
                try:
                    async with producer.transaction(consumer=consumer) as txn:
                        for record in batch:
                            await txn.send(task.target, record.value, partition=record.partition)
                        await txn.send_offsets(consumer)
                except fencepost.AbortableError:
                    continue  # the consumer goes back by itself
                except fencepost.OutcomeUnknownError:
                    await producer.reinitialise()
