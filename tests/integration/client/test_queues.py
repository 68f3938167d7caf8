"""Queues against a real broker: share groups as a program sees them (KIP-932).

FENCEPOST_TEST_BOOTSTRAP_OF_QUEUES names another broker than ours: an Apache Kafka that takes locks of one second
(`group.share.min.record.lock.duration.ms=1000`).
"""

import logging
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import TypedDict

import pytest
import trio

import fencepost
import fencepost.sync
from fencepost import AcknowledgementError, ErrorCode, Message
from tests.kit.broker_process import BrokerProcess

SHORT_LOCKS = {"group.share.min.record.lock.duration.ms": "1000"}
GIVEN = os.environ.get("FENCEPOST_TEST_BOOTSTRAP_OF_QUEUES")
ENOUGH_S = 20


class Quick(TypedDict):
    fetch_max_wait: float


QUICK = Quick(fetch_max_wait=0.05)
"""Fetches that wait shortly at the broker, so that a queue ends soon."""


@pytest.fixture(scope="module")
def address_of_queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose groups may have locks of one second."""
    if GIVEN is not None:
        yield GIVEN
        return
    with BrokerProcess(tmp_path_factory.mktemp("queues"), settings=SHORT_LOCKS) as broker:
        yield broker.address


@pytest.fixture
async def kafka(address_of_queues: str) -> AsyncIterator[fencepost.Client]:
    """An open client of that broker."""
    with trio.fail_after(ENOUGH_S):
        async with fencepost.Client(address_of_queues) as client:
            yield client


async def prepare(kafka: fencepost.Client, name: str, values: int, *, partitions: int = 1, **settings: str) -> None:
    """A topic with values "0", "1", ..., and a group of the same name that reads it from its beginning."""
    async with kafka.admin() as admin:
        await admin.create_topics(name, partitions=partitions)
        changes = {"share.auto.offset.reset": "earliest"} | {
            key.replace("_", "."): one for key, one in settings.items()
        }
        await admin.incremental_alter_configs(changes, group=name)
    async with kafka.producer() as producer, producer.batch() as batch:
        for number in range(values):
            await batch.send(name, b"%d" % number)


async def test_members_share_the_records_of_one_partition(kafka: fencepost.Client, name: str) -> None:
    """More members than partitions, several workers in each: every record is accepted once (KIP-932)."""
    await prepare(kafka, name, 300)
    seen: list[tuple[str, bytes | None, int]] = []

    async def work(member: str) -> None:
        async with kafka.queue(name, group=name, max_in_flight=20, **QUICK) as queue:

            async def handle(message: Message[bytes, bytes]) -> None:
                members.add(member)
                if len(members) == 2:
                    both.set()
                await both.wait()
                seen.append((member, message.value, message.delivery_count))
                if len(seen) == 300:
                    done.set()

            queues.append(queue)
            await queue.run(handle, workers=4)

    done, both = trio.Event(), trio.Event()
    members, queues = set[str](), list[fencepost.Queue[bytes, bytes]]()
    async with trio.open_nursery() as nursery:
        for member in "ab":
            nursery.start_soon(work, member)
        await done.wait()
        for queue in queues:
            queue.stop()
    assert Counter(value for _, value, _ in seen) == Counter(b"%d" % number for number in range(300))
    assert {count for _, _, count in seen} == {1}
    assert {member for member, _, _ in seen} == {"a", "b"}
    assert [queue.lost for queue in queues] == [0, 0]


async def test_an_error_in_the_block_leaves_it_and_the_record_comes_again(kafka: fencepost.Client, name: str) -> None:
    await prepare(kafka, name, 2)
    counts = []
    async with kafka.queue(name, group=name, retry_delay=0.1, **QUICK) as queue:
        began = trio.current_time()
        async for message in queue:
            try:
                async with message:
                    counts.append((message.value, message.delivery_count))
                    if message.value == b"0" and message.delivery_count < 3:
                        raise ValueError("not yet")
            except ValueError:
                continue
            if len(counts) == 4:
                break
        await message.acknowledged()
    assert counts == [(b"0", 1), (b"1", 1), (b"0", 2), (b"0", 3)]
    assert trio.current_time() - began > 0.1 + 0.2, "the delay doubles"


async def test_a_record_is_rejected_for_good_and_released_at_once(kafka: fencepost.Client, name: str) -> None:
    await prepare(kafka, name, 3)
    got = []
    async with kafka.queue(name, group=name, **QUICK) as queue:
        async for message in queue:
            got.append((message.value, message.delivery_count))
            async with message:
                if message.value == b"0":
                    message.reject()
                elif message.delivery_count == 1:
                    message.release()
            await message.acknowledged()
            if len(got) == 5:
                break
        with pytest.raises(RuntimeError, match="decided already"):
            message.accept()
    assert sorted(got) == [(b"0", 1), (b"1", 1), (b"1", 2), (b"2", 1), (b"2", 2)]


async def test_what_cannot_be_deserialized_is_rejected(
    kafka: fencepost.Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A poison record does not stop what is behind it."""
    await prepare(kafka, name, 3)

    def number(data: bytes) -> int:
        if data == b"1":
            raise ValueError("one is none")
        return int(data)

    got = []
    async with kafka.queue(name, group=name, value_deserializer=number, **QUICK) as queue:
        async for message in queue:
            async with message:
                got.append(message.value)
            if len(got) == 2:
                break
    assert got == [0, 2]
    assert [record.levelname for record in caplog.records if "rejected a record" in record.message] == ["WARNING"]


async def test_a_lock_is_renewed_while_the_block_runs_and_ends_without_one(kafka: fencepost.Client, name: str) -> None:
    """KIP-1222; without a block the lock ends, and the acknowledgement that comes too late is reported."""
    await prepare(kafka, name, 2, share_record_lock_duration_ms="1000")
    async with kafka.queue(name, group=name, max_in_flight=2, **QUICK) as queue:
        source = aiter(queue)
        kept, left = await anext(source), await anext(source)
        async with kept:
            await trio.sleep(1.6)
        await kept.acknowledged()
        left.accept()
        with pytest.raises(AcknowledgementError) as caught:
            await left.acknowledged()
        again = await anext(source)
        async with again:
            pass
        await again.acknowledged()
    assert caught.value.code is ErrorCode.INVALID_RECORD_STATE
    assert (again.value, again.delivery_count, queue.lost) == (left.value, 2, 1)


async def abort(producer: fencepost.TransactionalProducer[bytes, bytes], topic: str) -> None:
    async with producer.transaction() as txn:
        await txn.send(topic, b"aborted")
        raise ValueError("no")


async def test_markers_and_aborted_records_are_gaps(kafka: fencepost.Client, name: str) -> None:
    """With share.isolation.level=read_committed; markers are acknowledged as gaps (ShareCompletedFetch)."""
    await prepare(kafka, name, 1, share_isolation_level="read_committed")
    async with kafka.transactional_producer(name) as producer:
        with pytest.raises(ValueError, match="no"):
            await abort(producer, name)
        async with producer.transaction() as txn:
            await txn.send(name, b"committed")
    async with kafka.producer() as plain:
        await plain.send(name, b"last")
    got = []
    async with kafka.queue(name, group=name, **QUICK) as queue:
        async for message in queue:
            async with message:
                got.append(message.value)
            if message.value == b"last":
                break
    assert got == [b"0", b"committed", b"last"]


async def test_leaving_waits_for_blocks_and_gives_the_rest_to_others(kafka: fencepost.Client, name: str) -> None:
    await prepare(kafka, name, 10)
    finished = list[bytes | None]()

    async def slow(message: Message[bytes, bytes]) -> None:
        async with message:
            began.set()
            await trio.sleep(0.3)
            finished.append(message.value)

    began = trio.Event()
    async with trio.open_nursery() as nursery:
        async with kafka.queue(name, group=name, **QUICK) as queue:
            nursery.start_soon(slow, await anext(aiter(queue)))
            await began.wait()
        assert finished == [b"0"], "the block of the queue waits for it"
    rest = list[tuple[bytes | None, int]]()
    async with kafka.queue(name, group=name, **QUICK) as queue:
        async for message in queue:
            async with message:
                rest.append((message.value, message.delivery_count))
            if len(rest) == 9:
                break
    assert sorted(rest) == [(b"%d" % number, 2) for number in range(1, 10)]


async def test_a_worker_whose_handler_fails_takes_the_next_message(
    kafka: fencepost.Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(kafka, name, 3)
    seen = []

    async def handle(message: Message[bytes, bytes]) -> None:
        seen.append(message.value)
        if message.delivery_count == 1 and message.value == b"0":
            raise ValueError("the first time")
        if len(seen) == 4:
            queue.stop()

    caplog.set_level(logging.ERROR)
    async with kafka.queue(name, group=name, retry_delay=0.1, **QUICK) as queue:
        await queue.run(handle)
    assert seen == [b"0", b"1", b"2", b"0"]
    assert "the first time" in caplog.text


async def test_a_record_does_not_come_before_the_time_in_its_header(kafka: fencepost.Client, name: str) -> None:
    """H15: where the broker does not look, the client gives it back until then, which costs a delivery."""
    await prepare(kafka, name, 0)
    async with kafka.producer() as producer:
        await producer.send(name, b"later", headers=[fencepost.not_before(1.5)])
        sent_at = trio.current_time()
        await producer.send(name, b"at once", headers=[fencepost.not_before(-5)])
    async with kafka.queue(name, group=name, **QUICK) as queue:
        got: list[tuple[bytes | None, int]] = []
        async for message in queue:
            async with message:
                got.append((message.value, message.delivery_count))
            if len(got) == 2:
                break
    assert got == [(b"at once", 1), (b"later", 2)]
    assert trio.current_time() - sent_at >= 1.4


def test_the_blocking_queue(address_of_queues: str, name: str) -> None:
    """The same with `with` and `for`; handlers run in threads."""
    trio.run(_prepare_for_threads, address_of_queues, name)
    seen, threads = [], set()

    def handle(message: fencepost.sync.Message[bytes, bytes]) -> None:
        seen.append(message.value)
        threads.add(threading.get_ident())
        if len(seen) == 4:
            queue.stop()

    with fencepost.sync.Client(address_of_queues) as kafka, kafka.queue(name, group=name, **QUICK) as queue:
        for message in queue:
            with message:
                seen.append(message.value)
            message.acknowledged()
            break
        queue.run(handle, workers=2)
    assert sorted(value for value in seen if value is not None) == [b"0", b"1", b"2", b"3"]
    assert threading.get_ident() not in threads


async def _prepare_for_threads(address: str, name: str) -> None:
    async with fencepost.Client(address) as kafka:
        await prepare(kafka, name, 4)
