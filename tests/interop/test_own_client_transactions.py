"""Our transactions on our broker and on a real Apache Kafka, TV2 and TV1; what came of them is read by librdkafka."""

from collections.abc import Iterable

import pytest
import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

import fencepost
from fencepost import AbortableError, FencedError
from tests.interop.confluent_steps import READ_COMMITTED, create_topic, read_to_end, until_decided

pytestmark = pytest.mark.interop
SECONDS = 100
TIMEOUT_S = 5
"""Of a transaction that times out; the one behind it takes far less, or is tried again."""
PLACES = {"fencepost": "bootstrap", "kafka-tv2": "real_kafka", "kafka-tv1": "real_kafka_tv1"}


@pytest.fixture(params=sorted(PLACES))
def broker(request: pytest.FixtureRequest) -> tuple[str, bool]:
    """An address, and whether TV2 is spoken there."""
    found = request.getfixturevalue(PLACES[request.param])
    return (found if isinstance(found, str) else found.address), request.param != "kafka-tv1"


@pytest.fixture
def address(broker: tuple[str, bool]) -> str:
    return broker[0]


@pytest.fixture
def tv2(broker: tuple[str, bool]) -> bool:
    return broker[1]


def committed_values(address: str, topic: str, partitions: Iterable[int] = (0, 1)) -> list[bytes]:
    """What librdkafka sees with read_committed once all is decided, sorted."""
    until_decided(address, topic, partitions)
    return sorted(message.value() for message in read_to_end(address, topic, list(partitions), READ_COMMITTED))


async def test_all_or_nothing_in_the_protocol_of_the_cluster(address: str, tv2: bool, name: str) -> None:
    """T7, T16: commits and aborts in a row, the next one begun at once (CONCURRENT_TRANSACTIONS on a Kafka)."""
    create_topic(address, name, 2)
    async with fencepost.Client(address) as kafka, kafka.transactional_producer(name) as producer:
        with trio.fail_after(SECONDS):
            for n in range(20):
                try:
                    async with producer.transaction() as txn:
                        assert txn._state.tv2 is tv2
                        await txn.send_many(name, [(None, b"%02d.%d" % (n, i)) for i in range(3)])
                        if n % 4 == 1:
                            await producer.flush()
                            raise AbortableError("on purpose")
                except AbortableError:
                    continue
    assert committed_values(address, name) == [b"%02d.%d" % (n, i) for n in range(20) if n % 4 != 1 for i in range(3)]


async def test_offsets_of_a_transaction_are_the_groups(address: str, name: str) -> None:
    """T5, KIP-447: librdkafka finds the group where our transactions put it."""
    source, target = f"{name}-in", f"{name}-out"
    create_topic(address, source, 2)
    create_topic(address, target, 2)
    async with fencepost.Client(address) as kafka:
        async with kafka.producer() as producer, producer.batch() as batch:
            for n in range(60):
                await batch.send(source, b"%02d" % n, partition=n % 2)
        done = turns = 0
        async with kafka.consumer(source, group=name) as consumer, kafka.transactional_producer(name) as copier:
            with trio.fail_after(SECONDS):
                async for records in consumer.batches(max_records=7):
                    turns += 1
                    try:
                        async with copier.transaction() as txn:
                            await txn.send_many(target, [(None, record.value) for record in records])
                            await txn.send_offsets(consumer)
                            if turns % 3 == 2:
                                raise AbortableError("it comes again")
                    except AbortableError:
                        continue
                    done += len(records)
                    if done >= 60:
                        break
    assert committed_values(address, target) == [b"%02d" % n for n in range(60)]
    reader = Consumer({"bootstrap.servers": address, "group.id": name})
    try:
        places = reader.committed([Place(source, 0), Place(source, 1)], timeout=SECONDS)
    finally:
        reader.close()
    assert [place.offset for place in places] == [30, 30]


async def test_a_newer_producer_of_another_library_fences_ours(address: str, name: str) -> None:
    """T2: librdkafka takes the transactional id over in the middle; what was open is aborted."""
    create_topic(address, name, 2)

    def overtake() -> None:
        other = Producer({"bootstrap.servers": address, "transactional.id": name})
        other.init_transactions(SECONDS)
        other.begin_transaction()
        other.produce(name, b"newer", partition=0)
        other.commit_transaction(SECONDS)

    async def overtaken(producer: fencepost.TransactionalProducer) -> None:
        async with producer.transaction() as txn:
            await txn.send(name, b"older", partition=0)
            await producer.flush()
            await trio.to_thread.run_sync(overtake)

    async with fencepost.Client(address) as kafka, kafka.transactional_producer(name) as producer:
        with trio.fail_after(SECONDS), pytest.raises(FencedError):
            await overtaken(producer)
    assert committed_values(address, name) == [b"newer"]


async def test_a_transaction_that_timed_out(address: str, tv2: bool, name: str) -> None:
    """T10, T11: under TV2 it was only aborted and the producer lives on; before, it is fenced for good."""
    create_topic(address, name, 2)
    async with (
        fencepost.Client(address) as kafka,
        kafka.admin() as admin,
        kafka.transactional_producer(name, transaction_timeout=TIMEOUT_S) as producer,
    ):

        async def dawdle() -> None:
            async with producer.transaction() as txn:
                await txn.send(name, b"late", partition=0)
                await producer.flush()
                while True:
                    await trio.sleep(0.2)
                    if (await admin.describe_transactions(name))[name].state != "Ongoing":
                        return

        with trio.fail_after(SECONDS), pytest.raises(AbortableError if tv2 else FencedError):
            await dawdle()
        with trio.fail_after(SECONDS):
            lives = tv2
            while lives:
                try:
                    async with producer.transaction() as txn:
                        await txn.send(name, b"next", partition=0)
                    lives = False
                except AbortableError:
                    continue  # a slow machine took as long as the timeout once more
    assert committed_values(address, name) == [b"next"] * tv2


async def test_whole_transactions_of_another_library(address: str, name: str) -> None:
    """librdkafka writes (TV1 everywhere); its transactions come whole, neighbours perhaps together."""
    create_topic(address, name, 2)
    other = Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 1})
    other.init_transactions(SECONDS)
    written = {}
    for n in range(12):
        other.begin_transaction()
        values = {b"%02d.%d" % (n, i) for i in range(n % 4 + 1)}
        for i, value in enumerate(sorted(values)):
            other.produce(name, value, partition=(n + i) % 2)
        if n % 5 == 3:
            other.abort_transaction(SECONDS)
        else:
            other.commit_transaction(SECONDS)
            written[b"%02d" % n] = values
    async with fencepost.Client(address) as kafka, kafka.consumer(name) as consumer:
        seen: set[bytes] = set()
        with trio.fail_after(SECONDS):
            async for unit in consumer.transactions():
                got = {record.value for record in unit}
                assert got == set().union(*(written[one[:2]] for one in got))
                assert not got & seen
                seen |= got
                if len(seen) == sum(map(len, written.values())):
                    break


async def test_whole_transactions_of_ours(address: str, tv2: bool, name: str) -> None:
    """Under TV2 each comes alone."""
    create_topic(address, name, 2)
    async with fencepost.Client(address) as kafka:
        async with kafka.transactional_producer(name) as producer:
            for n in range(10):
                async with producer.transaction() as txn:
                    for i in range(3):
                        await txn.send(name, b"%d.%d" % (n, i), partition=(n + i) % 2)
        async with kafka.consumer(name) as consumer:
            units: list[set[bytes]] = []
            with trio.fail_after(SECONDS):
                async for unit in consumer.transactions():
                    units.append({record.value for record in unit})
                    if sum(map(len, units)) == 30:
                        break
    assert sorted(set().union(*units)) == sorted(b"%d.%d" % (n, i) for n in range(10) for i in range(3))
    if tv2:
        assert units == [{b"%d.%d" % (n, i) for i in range(3)} for n in range(10)]
