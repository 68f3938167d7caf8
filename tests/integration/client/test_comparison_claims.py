"""What docs/comparison.md says that aiokafka and confluent-kafka do and do not do, against a broker of ours."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AIOKafkaTopic
from aiokafka.errors import MessageSizeTooLargeError, ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.aio import AIOProducer

import fencepost
from fencepost import TopicPartition
from fencepost.sync import Client
from tests.kit.broker_process import BrokerProcess
from tests.kit.example_programs import send, values

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}
SMALL = {"max.message.bytes": "1000"}
TOO_LARGE = b"x" * 5000
WAIT_S = 60.0
NO_BROKER = "127.0.0.1:9"
ids = (f"claim-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("claims"), settings=SETTINGS) as broker:
        yield broker.address


@pytest.fixture
def topic(address: str) -> str:
    """A topic of one partition with two records, which is a transactional id and a group's name as well."""
    name = next(ids)
    with Client(address) as kafka, kafka.admin() as admin:
        admin.create_topics(name, partitions=1)
    send(address, name, (b"k", b"1"), (b"k", b"2"))
    return name


@pytest.fixture
def small_topic(address: str) -> str:
    """A topic that takes no large records."""
    name = next(ids)
    with Client(address) as kafka, kafka.admin() as admin:
        admin.create_topics(name, partitions=1, configs=SMALL)
    return name


def aiokafka_consumer(address: str, topic: str, **options: Any) -> AIOKafkaConsumer:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
    return AIOKafkaConsumer(topic, bootstrap_servers=address, group_id=topic, **settings, **options)


def confluent_consumer(address: str, topic: str, **options: Any) -> Consumer:
    settings = {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, **options})
    consumer.subscribe([topic])
    return consumer


def confluent_producer(address: str, transactional_id: str, **options: Any) -> Producer:
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id, **options})
    producer.init_transactions(WAIT_S)
    return producer


def one_message(consumer: Consumer) -> Any:
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.error() is None
    return message


def poll_until(done: Callable[[], bool], *consumers: Consumer) -> None:
    ends = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < ends
        for consumer in consumers:
            consumer.poll(0.1)


def remove_members(address: str, group: str) -> None:
    """The group gives up all its members, as after a session that ended."""
    with Client(address) as kafka, kafka.admin() as admin:
        members = [member.member_id for member in admin.describe_groups(group)[group].members]
        assert members
        admin.remove_members(group, member_ids=members)


def committed(address: str, topic: str) -> Any:
    with Client(address) as kafka, kafka.admin() as admin:
        return admin.list_group_offsets(topic).get(TopicPartition(topic, 0))


def test_aiokafka_commits_without_a_record_that_was_refused(address: str, small_topic: str) -> None:
    """And without those of the next transaction, whose sequence numbers follow those of the refused one."""

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=small_topic) as producer:
            async with producer.transaction():
                refused = await producer.send(small_topic, TOO_LARGE)
            assert isinstance(refused.exception(), MessageSizeTooLargeError)
            async with producer.transaction():
                lost = await producer.send(small_topic, b"small enough")
            assert lost.exception() is not None

    asyncio.run(main())
    assert not values(address, small_topic)


def test_confluent_kafka_and_ours_abort_for_a_record_that_was_refused(address: str, small_topic: str) -> None:
    producer = confluent_producer(address, small_topic)
    producer.begin_transaction()
    producer.produce(small_topic, TOO_LARGE)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(WAIT_S)
    assert caught.value.args[0].txn_requires_abort()
    producer.abort_transaction(WAIT_S)

    with Client(address) as kafka, kafka.transactional_producer(small_topic) as ours:
        with pytest.raises(fencepost.RecordRejectedError), ours.transaction() as txn:
            txn.send(small_topic, TOO_LARGE)
        with ours.transaction() as txn:
            txn.send(small_topic, b"small enough")
    assert values(address, small_topic).total() == 1


def test_aiokafka_commits_offsets_for_a_member_that_the_group_gave_up(address: str, topic: str) -> None:
    async def main() -> None:
        async with (
            aiokafka_consumer(address, topic) as consumer,
            AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic) as producer,
        ):
            record = await consumer.getone()
            at = {next(iter(consumer.assignment())): record.offset + 1}
            async with producer.transaction():
                await asyncio.to_thread(remove_members, address, topic)
                await producer.send_offsets_to_transaction(at, topic)

    asyncio.run(main())
    assert committed(address, topic).offset == 1


def test_confluent_kafka_refuses_offsets_of_a_member_that_the_group_gave_up(address: str, topic: str) -> None:
    producer, consumer = confluent_producer(address, topic), confluent_consumer(address, topic)
    one_message(consumer)
    member, at = consumer.consumer_group_metadata(), consumer.position(consumer.assignment())
    producer.begin_transaction()
    remove_members(address, topic)
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction(at, member, WAIT_S)
    assert caught.value.args[0].txn_requires_abort()
    producer.abort_transaction(WAIT_S)
    consumer.close()
    assert committed(address, topic) is None


def test_aiokafka_rebalances_within_a_transaction(address: str, topic: str) -> None:
    """Both have joined again and shared the partition long before the group would give the first one up."""

    async def main() -> None:
        async with (
            aiokafka_consumer(address, topic, heartbeat_interval_ms=200, rebalance_timeout_ms=60_000) as first,
            AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic) as producer,
        ):
            await first.getone()
            async with producer.transaction(), asyncio.timeout(20), aiokafka_consumer(address, topic) as second:
                while len(first.assignment()) + len(second.assignment()) != 1:  # noqa: ASYNC110 - aiokafka has no event for it
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def test_confluent_kafka_rebalances_only_where_it_is_asked_for_records(address: str, topic: str) -> None:
    first = confluent_consumer(address, topic, **{"heartbeat.interval.ms": 200})
    one_message(first)
    second = confluent_consumer(address, topic)
    with Client(address) as kafka, kafka.admin() as admin:
        poll_until(lambda: admin.describe_groups(topic)[topic].state != "Stable", second)
        ends = time.monotonic() + 1
        while time.monotonic() < ends:
            second.poll(0.1)
            assert (len(first.assignment()), len(second.assignment())) == (1, 0), "the group waits for the first"
        poll_until(lambda: admin.describe_groups(topic)[topic].state == "Stable", first, second)
    first.close()
    second.close()


@pytest.mark.parametrize("rewinds", ["aiokafka", "confluent-kafka"])
def test_neither_goes_back_after_an_abort(address: str, topic: str, rewinds: str) -> None:
    async def with_aiokafka() -> list[bytes | None]:
        async with (
            aiokafka_consumer(address, topic) as consumer,
            AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic) as producer,
        ):
            await producer.begin_transaction()
            first = await consumer.getone()
            await producer.abort_transaction()
            return [first.value, (await consumer.getone()).value]

    def with_confluent() -> list[bytes | None]:
        producer, consumer = confluent_producer(address, topic), confluent_consumer(address, topic)
        producer.begin_transaction()
        first = one_message(consumer)
        producer.abort_transaction(WAIT_S)
        second = one_message(consumer)
        consumer.close()
        return [first.value(), second.value()]

    assert (asyncio.run(with_aiokafka()) if rewinds == "aiokafka" else with_confluent()) == [b"1", b"2"]


def test_a_transaction_that_timed_out_ends_both_producers_and_not_ours(address: str, topic: str) -> None:
    async def with_aiokafka() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=address, transactional_id=f"{topic}-aiokafka", transaction_timeout_ms=300
        ) as producer:
            with pytest.raises(ProducerFenced):  # noqa: PT012 - the whole block fails
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"late")
                    await asyncio.sleep(1)
            with pytest.raises(AssertionError):
                await producer.begin_transaction()

    asyncio.run(with_aiokafka())

    producer = confluent_producer(address, f"{topic}-confluent", **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    producer.produce(topic, b"late")
    producer.flush(WAIT_S)
    time.sleep(1.5)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(WAIT_S)
    assert caught.value.args[0].fatal()

    with Client(address) as kafka, kafka.transactional_producer(topic, transaction_timeout=1) as ours:
        with pytest.raises(fencepost.AbortableError), ours.transaction() as txn:  # noqa: PT012 - the whole block fails
            txn.send(topic, b"late")
            ours.flush()
            time.sleep(1.5)
        with ours.transaction() as txn:
            txn.send(topic, b"3")
    assert sorted(value or b"" for _, value in values(address, topic)) == [b"1", b"2", b"3"]


def test_aiokafka_cannot_tell_what_became_of_a_commit_that_was_cancelled(address: str, topic: str) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"3")
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            for call in (producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(AssertionError):
                    await call()

    asyncio.run(main())
    assert values(address, topic).total() == 3, "it has committed in the background"


def test_aiokafka_reports_a_topic_that_was_not_created_in_its_answer(address: str) -> None:
    async def main() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        answer = await admin.create_topics([AIOKafkaTopic("not/valid", 1, 1)])
        await admin.close()
        assert [error for _, error, *_ in answer.topic_errors] == [KafkaError.TOPIC_EXCEPTION]

    asyncio.run(main())


def test_the_asyncio_producer_of_confluent_kafka_takes_no_headers(address: str, topic: str) -> None:
    async def main() -> None:
        async with AIOProducer({"bootstrap.servers": address}) as producer:
            with pytest.raises(NotImplementedError):
                await producer.produce(topic, b"3", headers=[("a", b"b")])

    asyncio.run(main())


def test_the_defaults_that_the_page_names(address: str, topic: str) -> None:
    """confluent-kafka commits what it gave, processed or not; aiokafka reads what is not committed."""
    with Consumer({"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        one_message(consumer)
    assert committed(address, topic).offset > 0
    with Client(address) as kafka, kafka.transactional_producer(topic) as producer, producer.transaction() as txn:
        txn.send(topic, b"open")
        producer.flush()

        async def with_aiokafka() -> bytes | None:
            async with AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
                return [(await consumer.getone()).value for _ in range(3)][-1]

        assert asyncio.run(with_aiokafka()) == b"open"


def test_confluent_kafka_waits_for_nothing_at_the_end(address: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 10_000})
    producer.produce(topic, b"3")
    del producer
    assert values(address, topic).total() == 2
    created = AdminClient({"bootstrap.servers": NO_BROKER}).create_topics([NewTopic(topic, 1)])
    with pytest.raises((KafkaException, TimeoutError)) as caught:  # on a busy machine some futures never end
        created[topic].result(5)
    assert isinstance(caught.value, TimeoutError) or caught.value.args[0].code() == KafkaError._DESTROY
