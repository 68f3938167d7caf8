"""What a program sees of the producer: waiting, cancelling, errors, memory, options, figures; by scripted answers."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

import fencepost
from fencepost import ConfigError, DeliveryError, ErrorCode, KafkaError, RetriableError, WouldBlockError
from fencepost.client.config import ProducerConfig
from fencepost.client.config_parsing import parse
from fencepost.client.producer.broker_state import level_of
from fencepost.client.producer.buffer import BufferMemory
from tests.kit.scripted_broker import HANG_UP, SILENCE, ScriptedBroker

Script = Callable[..., Any]


def client(broker: ScriptedBroker, **options: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), **{"retry_backoff": 0.001, **options})


# -- deadlines and cancelling


async def test_a_record_fails_at_its_deadline_while_its_request_is_unanswered(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """The outcome is unknown and the error says so; what comes after is numbered as if nothing had happened."""
    broker = await script()
    async with (
        client(broker, request_timeout=60) as kafka,
        kafka.producer(delivery_timeout=50) as producer,
    ):
        assert (await producer.send("t", b"first")).offset == 0
        broker.scripts["Produce"] = [SILENCE]
        began = trio.current_time()
        with pytest.raises(DeliveryError, match="gave up") as late:
            await producer.send("t", b"a")
        assert late.value.may_be_written
        assert 50 <= trio.current_time() - began < 51
        assert producer.metrics().record_error_total == 1
        broker.scripts["Produce"] = [broker.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)] * 2
        assert (await producer.send("t", b"b")).offset == 1
        # The first is never sent again. Asked once more, when its request is over, the broker tells that it never came.
        assert [sent.place for sent in broker.batches] == [(1, 0), (1, 1), (1, 2), (1, 2), (2, 0)]


async def test_a_record_that_was_never_sent_says_so(script: Script, autojump_clock: trio.testing.MockClock) -> None:
    broker = await script()
    broker.scripts["Produce"] = [broker.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 10_000
    async with client(broker) as kafka, kafka.producer(delivery_timeout=0.5) as producer:
        with pytest.raises(DeliveryError) as late:
            await producer.send("t", b"a")
        assert not late.value.may_be_written, "this error is answered before the append"


async def cancel_when(scope: trio.CancelScope, true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110 - nobody tells of it
        await trio.sleep(0.001)
    scope.cancel()


async def test_cancelled_while_it_waits_for_the_answer_a_record_is_still_delivered_once(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await script()
    broker.scripts["Produce"] = [SILENCE]
    async with (
        client(broker, request_timeout=0.2) as kafka,
        kafka.producer() as producer,
        trio.open_nursery() as side,
    ):
        with trio.CancelScope() as scope:
            side.start_soon(cancel_when, scope, lambda: broker.names("Produce"))
            await producer.send("t", b"a")
        assert scope.cancelled_caught
        await producer.flush()
    assert broker.logs[0] == [b"a"]


async def test_cancelled_while_it_waits_for_room_a_record_is_nowhere(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await script()
    broker.scripts["Produce"] = [SILENCE]
    small = {"buffer_memory": 1024, "batch_size": 512}
    async with client(broker, request_timeout=2) as kafka, kafka.producer(**small) as producer:
        first = await producer.submit("t", b"x" * 900)
        with trio.move_on_after(0.05) as scope:
            await producer.submit("t", b"y" * 900)
        assert scope.cancelled_caught
        assert producer.metrics().waiting_threads == 0
        assert (await first.wait()).offset == 0
    assert broker.logs[0] == [b"x" * 900]


async def test_no_room_for_max_block_is_an_error_and_the_record_is_not_sent(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await script()
    broker.scripts["Produce"] = [SILENCE]
    options = {"buffer_memory": 1024, "max_block": 1.5}
    async with client(broker, request_timeout=10) as kafka, kafka.producer(**options) as producer:
        first = await producer.submit("t", b"x" * 900)
        began = trio.current_time()
        with pytest.raises(RetriableError, match=r"\(max_block\)"):
            await producer.send("t", b"y" * 900)
        with pytest.raises(WouldBlockError, match=r"\d+ of 1024 bytes \(buffer_memory\) are in use\. Call `submit`"):
            producer.send_nowait("t", b"y" * 900)
        assert 1.5 <= trio.current_time() - began < 2
        await first.wait()
    assert broker.logs[0] == [b"x" * 900]


async def test_an_unknown_topic_is_waited_for_for_max_block_ms(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await script()
    async with client(broker) as kafka, kafka.producer(max_block=0.7) as producer:
        began = trio.current_time()
        with pytest.raises(RetriableError) as missing:
            await producer.send("other", b"a")
        assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert 0.7 <= trio.current_time() - began < 2
        with pytest.raises(WouldBlockError, match=r"topic 'other' are not known yet\. Call `submit`"):
            producer.send_nowait("other", b"a")


# -- memory


async def test_who_waits_longest_for_room_gets_it_first(autojump_clock: trio.testing.MockClock) -> None:
    """A large record is not starved by small ones that come later."""
    memory = BufferMemory(100)
    assert memory.take(80)
    order: list[str] = []

    async def wait(name: str, size: int, after: float) -> None:
        await trio.sleep(after)
        await memory.wait(size)
        order.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "large", 90, 1)
        nursery.start_soon(wait, "small", 20, 2)
        await trio.sleep(3)
        assert order == []
        assert not memory.take(1), "nobody passes those who wait"
        memory.release(80)
        await trio.testing.wait_all_tasks_blocked()
        assert order == ["large"]
        memory.release(90)
    assert order == ["large", "small"]
    assert memory.used == 20


async def test_room_that_was_granted_to_a_cancelled_task_is_given_to_the_next() -> None:
    memory = BufferMemory(10)
    assert memory.take(10)
    got: list[int] = []

    async def wait(number: int, scope: trio.CancelScope) -> None:
        with scope:
            await memory.wait(10)
            got.append(number)

    first, second = trio.CancelScope(), trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 1, first)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(wait, 2, second)
        await trio.testing.wait_all_tasks_blocked()
        first.cancel()
        memory.release(10)
    assert got in ([2], [1, 2])
    assert memory.used == 10 * len(got)


async def test_a_record_larger_than_the_whole_buffer_is_refused_at_once(script: Script) -> None:
    broker = await script()
    async with client(broker) as kafka, kafka.producer(buffer_memory=1024) as producer:
        with pytest.raises(KafkaError, match="buffer_memory") as refused:
            await producer.send("t", b"x" * 2000)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_requests_stay_within_max_request_size(script: Script) -> None:
    broker = await script(partitions=8)
    options = {"max_request_size": 4096, "batch_size": 3000}
    async with client(broker) as kafka, kafka.producer(**options) as producer, producer.batch() as batch:
        for n in range(64):
            await batch.send("t", b"x" * 700, partition=n % 8)
    sizes = [
        sum(len(part.records) for topic in request.topic_data for part in topic.partition_data)
        for name, _, request in broker.requests
        if name == "Produce"
    ]
    assert max(sizes) <= 4096
    assert sum(map(len, broker.logs.values())) == 64


# -- many records, and telling of failures


async def test_send_many_and_send_nowait(script: Script) -> None:
    broker = await script()
    async with client(broker) as kafka, kafka.producer() as producer:
        await producer.send_many("t", [(b"k", b"%d" % n) for n in range(100)])
        assert broker.logs[0] == [b"%d" % n for n in range(100)]
        delivery = producer.send_nowait("t", b"last", headers={"h": b"1", "n": None}, timestamp_ms=5)
        assert not delivery.done
        with pytest.raises(WouldBlockError, match="record for t-0 is not acknowledged yet"):
            delivery.result()
        meta = await delivery.wait()
        assert (meta.offset, meta.timestamp_ms, delivery.partition) == (100, 5, 0)


async def test_what_is_not_asked_for_is_raised_by_flush_and_by_the_end_of_the_block(script: Script) -> None:
    broker = await script()
    refuse = broker.refuse(ErrorCode.INVALID_RECORD)

    async def work() -> None:
        async with client(broker) as kafka, kafka.producer() as producer:
            await producer.send("t", b"first")
            broker.scripts["Produce"] = [refuse]
            producer.send_nowait("t", b"bad")
            with pytest.raises(ExceptionGroup) as at_flush:
                await producer.flush()
            assert len(at_flush.value.exceptions) == 1
            await producer.flush()
            broker.scripts["Produce"] = [refuse]
            asked = producer.send_nowait("t", b"bad")
            with pytest.raises(KafkaError, match="rejected"):
                await asked.wait()
            await producer.flush()
            broker.scripts["Produce"] = [refuse]
            producer.send_nowait("t", b"bad, too")

    with pytest.raises(ExceptionGroup) as at_the_end:
        await work()
    assert at_the_end.group_contains(KafkaError, match="rejected")


async def test_a_block_that_fails_sends_nothing_more(script: Script) -> None:
    broker = await script()
    left: list[Any] = []

    async def work() -> None:
        async with client(broker) as kafka, kafka.producer(linger=10) as producer:
            await producer.partitions_for("t")
            left.extend((producer, producer.send_nowait("t", b"a")))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    producer, delivery = left
    with pytest.raises(KafkaError, match="closed"):
        delivery.result()
    assert broker.batches == []
    with pytest.raises(KafkaError, match="closed"):
        await producer.send("t", b"late")


@pytest.mark.parametrize("lost", [False, True])
async def test_whoever_waits_for_an_answer_when_the_producer_is_closed_hears_of_it(script: Script, lost: bool) -> None:
    """It may be written: the request was on its way. Nobody is left waiting for ever.

    With `lost` its connection has ended, and the batch waits to be sent again.
    """
    broker = await script()
    broker.scripts["Produce"] = [HANG_UP if lost else SILENCE]
    heard: list[KafkaError] = []

    async def wait(delivery: fencepost.Delivery) -> None:
        try:
            await delivery.wait()
        except KafkaError as error:
            heard.append(error)

    async def work(nursery: trio.Nursery) -> None:
        patient = {"retry_backoff": 60, "retry_backoff_max": 60}
        async with client(broker, **patient) as kafka, kafka.producer() as producer:
            nursery.start_soon(wait, await producer.submit("t", b"a"))
            queues = producer._appender.accumulator.queues.values()
            while not (any(queue.resend for queue in queues) if lost else broker.batches):  # noqa: ASYNC110
                await trio.sleep(0.01)
            raise ZeroDivisionError

    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            try:
                await work(nursery)
            except ZeroDivisionError:
                pass
    assert [getattr(error, "may_be_written", None) for error in heard] == [True]


# -- partitions


async def test_a_partitioner_of_the_program(script: Script) -> None:
    broker = await script(partitions=4)
    seen: list[tuple[Any, ...]] = []

    def last(topic: str, key: bytes | None, value: bytes | None, partitions: Any) -> int:
        seen.append((topic, key, value, len(partitions)))
        return len(partitions) - 1

    async with client(broker) as kafka, kafka.producer(partitioner=last) as producer:
        assert (await producer.send("t", b"v", key=b"k")).partition == 3
        assert (await producer.send("t", b"v", key=b"k", partition=1)).partition == 1
    assert seen == [("t", b"k", b"v", 4)]
    async with client(broker) as kafka, kafka.producer(partitioner=lambda *_: 4) as producer:
        with pytest.raises(KafkaError, match="no 4"):
            await producer.send("t", b"v")


async def test_keys_can_be_ignored(script: Script) -> None:
    """`partitioner_ignore_keys`: records with one key go in runs like those without."""
    broker = await script(partitions=4)
    options = {"partitioner_ignore_keys": True, "batch_size": 500}
    async with client(broker) as kafka, kafka.producer(**options) as producer, producer.batch() as batch:
        for n in range(300):
            await batch.send("t", b"%050d" % n, key=b"same")
    assert len([log for log in broker.logs.values() if log]) > 1


# -- options and figures


@pytest.mark.parametrize(
    "options",
    [
        {"compression_gzip_level": 0},
        {"compression_gzip_level": 10},
        {"compression_zstd_level": 23},
        {"compression_lz4_level": 0},
        {"max_in_flight_requests_per_connection": 6},
        {"value_serializer": 5},
        {"partitioner": "sticky"},
    ],
)
async def test_options_are_checked(script: Script, options: dict[str, Any]) -> None:
    broker = await script()
    async with client(broker) as kafka:
        with pytest.raises(ConfigError, match=next(iter(options))):
            kafka.producer(**options)


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ({"compression": "gzip"}, None),
        ({"compression": "gzip", "compression_gzip_level": 9}, 9),
        ({"compression": "lz4", "compression_lz4_level": 9}, None),
        ({"compression": "lz4", "compression_lz4_level": 3}, 3),
        ({"compression": "zstd"}, 3),
        ({"compression": "snappy", "compression_zstd_level": 9}, None),
    ],
)
def test_levels_of_compression(options: dict[str, Any], level: int | None) -> None:
    """KIP-390: gzip's -1 and lz4's 9 are Kafka's names for the codec's own default."""
    assert level_of(parse(ProducerConfig, options)) == level


async def test_memory_comes_back_from_records_that_expire_are_split_or_refused(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await script()
    async with client(broker, request_timeout=9) as kafka, kafka.producer(delivery_timeout=5) as producer:
        await producer.send("t", b"first")
        broker.scripts["Produce"] = [broker.refuse(ErrorCode.MESSAGE_TOO_LARGE)]
        await producer.send_many("t", [(None, b"%d" % n) for n in range(11)])
        broker.scripts["Produce"] = [broker.refuse(ErrorCode.INVALID_RECORD), SILENCE]
        for value in (b"refused", b"expires"):
            with pytest.raises(KafkaError):
                await producer.send("t", value)
        assert producer.metrics().buffer_available_bytes < producer.metrics().buffer_total_bytes, "still on the wire"
        await trio.sleep(20)
        assert producer.metrics().buffer_available_bytes == producer.metrics().buffer_total_bytes


async def test_the_producers_figures(script: Script) -> None:
    broker = await script()
    broker.scripts["Produce"] = [
        broker.refuse(ErrorCode.MESSAGE_TOO_LARGE),
        broker.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ]
    async with client(broker) as kafka, kafka.producer(compression="gzip") as producer:
        await producer.send_many("t", [(None, b"a" * 100)] * 10)
        told = producer.metrics()
        assert (told.record_send_total, told.record_error_total, told.batch_split_total) == (10, 0, 1)
        assert told.record_retry_total == 15, "five once more because of the leader, both halves because of the size"
        assert 0 < told.compression_rate_avg < 0.5
        assert told.request_latency_max >= told.request_latency_avg > 0
        assert told.buffer_available_bytes == told.buffer_total_bytes
        assert told.prometheus()["kafka_producer_record_send_total"] == 10
