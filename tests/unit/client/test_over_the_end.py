"""What of a transaction or a call is still under way when it is over, and must not reach the next one: scripted."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

import fencepost
from fencepost import ErrorCode, OutcomeUnknownError
from fencepost.client.producer.buffer import BufferMemory
from fencepost.protocol.messages.api10_find_coordinator import Coordinator, FindCoordinatorResponse
from fencepost.protocol.messages.api26_end_txn import EndTxnResponse
from fencepost.protocol.record_batch import build_batch
from tests.kit.scripted_broker import SILENCE, ScriptedBroker

Script = Callable[..., Any]


def client(broker: ScriptedBroker, **options: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), **{"retry_backoff": 0.001, **options})


async def commit(producer: fencepost.TransactionalProducer, *values: bytes, partition: int = 0) -> None:
    with trio.fail_after(100):
        async with producer.transaction() as txn:
            for value in values:
                await txn.send("t", value, partition=partition)


async def give_up(
    producer: fencepost.TransactionalProducer, value: bytes, partition: int, sent: Callable[[], object]
) -> None:
    """A transaction whose block ends with an exception once `sent` says so."""
    async with producer.transaction() as txn:
        await txn.send("t", value, partition=partition)
        while not sent():  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.01)
        raise ZeroDivisionError


async def test_room_that_was_there_is_given_back_when_the_wait_is_cancelled() -> None:
    """`wait` takes nothing if it is cancelled, also where it need not have waited."""
    memory = BufferMemory(100)
    with trio.CancelScope() as scope:
        scope.cancel()
        await memory.wait(60)
    assert scope.cancelled_caught
    assert memory.used == 0


async def test_a_cancelled_send_of_ready_batches_keeps_no_room(script: Script) -> None:
    broker = await script()
    data = bytes(build_batch([(1, None, b"a" * 1000, ())], base_offset=0))
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        await commit(producer, b"first")
        before = producer.metrics()
        async with producer.transaction() as txn:
            with trio.CancelScope() as scope:
                scope.cancel()
                await txn.send_batches("t", 0, data)
            assert scope.cancelled_caught
            assert producer.metrics() == before


async def test_nothing_follows_under_the_epoch_of_a_transaction_that_is_over(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """An answer that never came kept the partition in the old epoch: the next transaction was refused for it."""
    broker = await script()
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        await commit(producer, b"known")
        broker.scripts["Produce"] = [SILENCE]
        with pytest.raises(ZeroDivisionError):
            await give_up(producer, b"old", 0, lambda: len(broker.batches) > 1)
        await commit(producer, b"new")
    assert broker.logs[0] == [b"known", b"new"]
    known, old, new = [batch.place for batch in broker.batches]
    assert old == (known[0] + 1, 0)
    assert new == (known[0] + 2, 0)


async def test_partitions_of_an_aborted_transaction_are_not_added_to_the_next_one(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """TV1: AddPartitionsToTxn that found no answer for as long as an abort may take is not asked again later."""
    broker = await script(partitions=2, transaction_version=1)

    def not_yet(request: Any, version: int) -> Any:
        return broker.added(request, ErrorCode.CONCURRENT_TRANSACTIONS)

    broker.scripts["AddPartitionsToTxn"] = [not_yet] * 8 + [SILENCE]
    async with client(broker, request_timeout=8) as kafka, kafka.transactional_producer("id") as producer:
        with pytest.raises(ZeroDivisionError):
            await give_up(producer, b"old", 1, lambda: not broker.scripts["AddPartitionsToTxn"])
        seen = len(broker.requests)
        await commit(producer, b"new")
    added = [
        partition
        for name, _, request in broker.requests[seen:]
        if name == "AddPartitionsToTxn"
        for topic in request.v3_and_below_topics
        for partition in topic.partitions
    ]
    assert added == [0]
    assert (broker.logs[0], broker.logs[1]) == ([b"new"], [])


@pytest.mark.parametrize("version", [2, 1])
async def test_a_commit_that_finds_no_coordinator_any_more_may_have_happened(
    script: Script, autojump_clock: trio.testing.MockClock, version: int
) -> None:
    """T7: Kafka answers NOT_COORDINATOR also where it lost the office after it had written the decision down."""
    broker = await script(transaction_version=version)
    broker.scripts["EndTxn"] = [EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)] * 10_000
    async with (
        client(broker, retry_backoff=0.1, default_api_timeout=5) as kafka,
        kafka.transactional_producer("id") as producer,
    ):
        with pytest.raises(OutcomeUnknownError):
            await commit(producer, b"a")
        broker.scripts["EndTxn"].clear()
        assert await producer.reinitialise() is True
    assert {request.committed for name, _, request in broker.requests if name == "EndTxn"} == {True}


async def test_an_answer_to_a_commit_that_can_not_be_read_is_no_refusal(script: Script) -> None:
    """It is asked for once more, as after a connection that was lost: to abort might be to deny what has happened."""
    broker = await script()
    broker.scripts["EndTxn"] = [b"?"]
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        await commit(producer, b"a")
    assert [request.committed for name, _, request in broker.requests if name == "EndTxn"] == [True, True]


async def test_a_coordinator_that_came_back_elsewhere_is_found(script: Script) -> None:
    """FindCoordinator's own address counts, as in Kafka's client: nothing else may ask for metadata."""
    broker, gone = await script(), await script()

    def moved(request: Any, version: int) -> Any:
        found = Coordinator(key=request.coordinator_keys[0], node_id=1, host="127.0.0.1", port=broker.port)
        return FindCoordinatorResponse(coordinators=[found])

    def elsewhere(request: Any, version: int) -> Any:
        answer = broker.on_Metadata(request, version)
        answer.brokers[0].port = 1  # nobody listens there
        return answer

    broker.scripts["Metadata"] = [elsewhere]
    broker.scripts["FindCoordinator"] = [moved]
    async with client(broker, default_api_timeout=20) as kafka:
        await kafka._cluster.refresh()
        async with kafka.transactional_producer("id"):
            pass
    assert gone.requests == []


async def test_a_half_that_arrived_does_not_hide_one_that_failed(script: Script) -> None:
    """A batch that the broker found too large is split: asking after a record of one half says nothing of the other."""
    broker = await script()
    broker.scripts["Produce"] = [
        broker.refuse(ErrorCode.MESSAGE_TOO_LARGE),
        lambda request, version: (broker._note(request), broker.produced(request, version))[1],
        broker.refuse(ErrorCode.INVALID_RECORD),
    ]
    async with client(broker) as kafka, kafka.producer(linger=0.05) as producer:
        deliveries = [await producer.submit("t", value) for value in (b"a", b"b")]
        with trio.fail_after(100):
            assert (await deliveries[0].wait()).offset == 0
            with pytest.raises(ExceptionGroup) as failed:
                await producer.flush()
        assert [error.code for error in failed.value.exceptions] == [ErrorCode.INVALID_RECORD]


@pytest.mark.parametrize("wrong", [1.5e12, "now", 2**63])
async def test_a_timestamp_that_is_none_is_refused_at_once(script: Script, wrong: Any) -> None:
    """Otherwise it would only be found when the batch is made, in a task of the client, and end that."""
    broker = await script()
    async with client(broker) as kafka, kafka.producer() as producer:
        with trio.fail_after(100):
            with pytest.raises((TypeError, ValueError), match="timestamp"):
                await producer.send("t", b"a", timestamp_ms=wrong)
            assert (await producer.send("t", b"b")).offset == 0
