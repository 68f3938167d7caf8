"""Messages that transactions acknowledge, against a real broker: from a queue to a topic exactly once (KIP-1289)."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest
import trio

import fencepost
import fencepost.sync
from fencepost import AbortableError, ErrorCode, FencedError
from tests.integration.client.transaction_kit import create, read_all
from tests.kit.broker_process import BrokerProcess

SETTINGS = {
    "unstable.api.versions.enable": "true",
    "group.share.min.record.lock.duration.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
ENOUGH_S = 30
KILLED = """
import sys
from fencepost.sync import Client

address, name = sys.argv[1:]
with (
    Client(address) as kafka,
    kafka.transactional_producer(name, transaction_timeout=0.5) as producer,
    kafka.queue(name, group=name) as queue,
    producer.transaction() as txn,
):
    message = next(iter(queue))
    txn.send(name + "-out", message.value)
    producer.flush()
    txn.accept(message)
    print(message.delivery_count, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("queues"), settings=SETTINGS) as broker:
        yield broker.address


async def prepare(
    kafka: fencepost.Client, name: str, *values: bytes, partitions: int = 1, lock_ms: int = 30_000
) -> None:
    """A topic with these values and one for the output; a group of the first one's name reads it."""
    await create(kafka, name, partitions=partitions)
    await create(kafka, name + "-out", partitions=1)
    async with kafka.admin() as admin:
        changes = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(lock_ms)}
        await admin.incremental_alter_configs(changes, group=name)
    async with kafka.producer() as producer:
        for number, value in enumerate(values):
            await producer.send(name, value, partition=number % partitions)


async def test_a_commit_counts_both_and_an_abort_neither(kafka: fencepost.Client, name: str) -> None:
    """KIP-1289: read_committed has the output once; the record comes again after an abort only, counted."""
    await prepare(kafka, name, b"a", b"b", b"poison")
    deliveries: list[tuple[bytes | None, int]] = []
    with trio.fail_after(ENOUGH_S):
        async with kafka.transactional_producer(name) as producer:
            async with kafka.queue(name, group=name) as queue:
                async for message in queue:
                    deliveries.append((message.value, message.delivery_count))
                    try:
                        async with message, producer.transaction() as txn:
                            if message.value == b"poison":
                                await txn.reject(message)
                            else:
                                await txn.send(name + "-out", message.value)
                                await txn.accept(message)
                            if (message.value, message.delivery_count) == (b"a", 1):
                                raise ZeroDivisionError
                    except ZeroDivisionError:
                        continue
                    await message.acknowledged()
                    if len(deliveries) == 4:
                        break
            assert queue.lost == 0
            assert sorted(deliveries) == [(b"a", 1), (b"a", 2), (b"b", 1), (b"poison", 1)]
            assert sorted(await read_all(kafka, name + "-out")) == [b"a", b"b"]
            async with kafka.queue(name, group=name, fetch_max_wait=0.05) as again:
                with trio.move_on_after(0.3):
                    pytest.fail(f"{await anext(aiter(again))} came again")


async def test_a_process_that_is_killed_between_acceptance_and_commit(
    kafka: fencepost.Client, address: str, name: str
) -> None:
    """The transaction's timeout gives the record back, and its output is never seen (row T10)."""
    await prepare(kafka, name, b"a")
    command = [sys.executable, "-c", KILLED, address, name]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    async with trio.open_nursery() as nursery:
        process = await nursery.start(partial(trio.run_process, command, check=False, **pipes))
        assert (await process.stdout.receive_some()).startswith(b"1")
        process.kill()
    with trio.fail_after(ENOUGH_S):
        async with kafka.transactional_producer("next-" + name) as producer, kafka.queue(name, group=name) as queue:
            message = await anext(aiter(queue))
            assert message.value == b"a"
            assert message.delivery_count > 1, "on a slow machine the killed process got it once more"
            async with producer.transaction() as txn:
                await txn.send(name + "-out", b"once")
                await txn.accept(message)
        assert await read_all(kafka, name + "-out") == [b"once"]


async def test_a_lock_that_ended_keeps_the_output_from_committing(kafka: fencepost.Client, name: str) -> None:
    """Another member has the record: its transaction alone may commit."""
    await prepare(kafka, name, b"a", lock_ms=1_000)
    with trio.fail_after(ENOUGH_S):
        async with (
            kafka.transactional_producer(name) as producer,
            kafka.transactional_producer("other-" + name) as other,
            kafka.queue(name, group=name) as slow,
        ):
            late = await anext(aiter(slow))
            slow.stop()  # it does not get the record again

            async def commit_late() -> None:
                async with producer.transaction() as txn:
                    await txn.send(name + "-out", b"late")
                    await txn.accept(late)

            async with kafka.queue(name, group=name) as quick, other.transaction() as txn:
                message = await anext(aiter(quick))
                assert message.delivery_count == 2
                await txn.send(name + "-out", b"in time")
                await txn.accept(message)
            with pytest.raises(AbortableError) as error:
                await commit_late()
            assert error.value.code is ErrorCode.INVALID_RECORD_STATE
        assert await read_all(kafka, name + "-out") == [b"in time"]


async def test_a_successor_gets_what_a_fenced_producer_accepted(kafka: fencepost.Client, name: str) -> None:
    """InitProducerId aborts the transaction before it (row P4); here with messages of two partitions."""
    await prepare(kafka, name, b"a", b"b", partitions=2)
    with trio.fail_after(ENOUGH_S):
        async with kafka.queue(name, group=name) as queue, kafka.transactional_producer(name) as producer:
            messages = aiter(queue)

            async def commit_too_late() -> None:
                async with producer.transaction() as txn:
                    await txn.accept(await anext(messages), await anext(messages))
                    async with kafka.transactional_producer(name):
                        again = await anext(messages), await anext(messages)
                        assert {(one.partition, one.delivery_count) for one in again} == {(0, 2), (1, 2)}
                        await txn.accept(*again)

            with pytest.raises(FencedError):
                await commit_too_late()


def test_without_an_event_loop(address: str, name: str) -> None:
    with fencepost.sync.Client(address) as kafka:
        with kafka.admin() as admin:
            admin.create_topics(name, partitions=1)
            admin.create_topics(name + "-out", partitions=1)
            admin.incremental_alter_configs({"share.auto.offset.reset": "earliest"}, group=name)
        with kafka.producer() as plain:
            plain.send_many(name, [(None, b"a"), (None, b"b")])
        with kafka.transactional_producer(name) as producer, kafka.queue(name, group=name) as queue:
            messages = iter(queue)
            with producer.transaction() as txn:
                first, second = next(messages), next(messages)
                with first:
                    txn.send(name + "-out", first.value)
                    txn.accept(first)
                txn.reject(second)
            first.acknowledged()
            assert queue.lost == 0
        with kafka.consumer(name + "-out") as consumer:
            assert next(iter(consumer)).value == b"a"
