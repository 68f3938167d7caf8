"""No wait is for ever and no pause is left out: silent brokers, brokers that refuse without an end, and how often.

Times are far apart (seconds against minutes), for the clock jumps whenever nothing has arrived for a moment.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

import fencepost
from fencepost import DeliveryError, ErrorCode, KafkaError, RecordRejectedError, RetriableError
from fencepost.protocol.messages.api10_find_coordinator import Coordinator, FindCoordinatorResponse
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdResponse
from tests.kit.scripted_broker import HANG_UP, SILENCE, ScriptedBroker

Script = Callable[..., Any]
ATTEMPTS = 40


def client(broker: ScriptedBroker, **options: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), **options)


# -- silence


async def test_a_connection_that_fell_silent_is_left_although_no_call_waits_for_the_request_timeout(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """Each call gives up sooner than that. Without this they would all go to the dead connection, until TCP knows."""
    broker = await script()
    async with client(broker, request_timeout=3, default_api_timeout=1) as kafka, kafka.admin() as admin:
        await admin.list_topics()
        broker.scripts["Metadata"] = [SILENCE] * 4
        answered = 0
        for _ in range(ATTEMPTS):
            try:
                await admin.list_topics()
            except KafkaError:
                continue
            answered += 1
            break
        assert answered
    assert len(broker.names("ApiVersions")) > 1, "by another connection"


async def test_a_coordinator_that_can_not_be_reached_is_not_kept_by_callers_in_a_hurry(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """Each of them is cancelled before the attempt to connect has failed; the coordinator has moved meanwhile."""
    broker, deaf = await script(), await script()
    deaf.scripts["ApiVersions"] = [SILENCE] * ATTEMPTS

    def elsewhere(request: Any, version: int) -> Any:
        found = Coordinator(key=request.coordinator_keys[0], node_id=2, host="127.0.0.1", port=deaf.port)
        return FindCoordinatorResponse(coordinators=[found])

    broker.scripts["FindCoordinator"] = [elsewhere]
    opened = False
    async with client(broker) as kafka:
        for _ in range(ATTEMPTS):
            with trio.move_on_after(5):
                async with kafka.transactional_producer("x"):
                    opened = True
                    break
    assert opened


async def test_a_connection_with_an_unanswered_request_is_no_idle_one(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await script()

    async def slowly(request: Any, version: int) -> Any:
        await trio.sleep(6)
        return broker.on_Produce(request, version)

    broker.scripts["Produce"] = [slowly]
    async with client(broker, connections_max_idle=4) as kafka, kafka.producer() as producer:
        assert (await producer.send("t", b"a")).offset == 0
    assert broker.names("Produce") == ["Produce"]


async def test_asking_for_a_producer_id_ends_with_the_producer(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await script()
    loading = InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    broker.scripts["InitProducerId"] = [loading] * 1000
    async with client(broker) as kafka:
        with trio.move_on_after(5):
            async with kafka.producer() as producer:
                await producer.send("t", b"a")
        asked = len(broker.names("InitProducerId"))
        await trio.sleep(60)
        assert len(broker.names("InitProducerId")) <= asked + 1


async def test_a_topic_without_partitions_is_waited_for_as_one_that_is_not_there(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await script(partitions=0)
    async with client(broker) as kafka, kafka.producer(max_block=2) as producer:
        with pytest.raises(RetriableError, match="no partitions"):
            await kafka._cluster.topic("t", deadline_ms=2000)
        with pytest.raises(RetriableError, match="no partitions"):
            await producer.send("t", b"a")


async def test_tv1_a_refused_record_ends_the_wait_of_those_whose_partition_was_not_added_yet(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """Nobody adds it any more. They would wait for `delivery_timeout`, and the abort with them."""
    broker = await script(partitions=3, transaction_version=1)
    both_handed_in = trio.Event()

    async def refuse(request: Any, version: int) -> Any:
        await both_handed_in.wait()
        return broker.produced(request, version, ErrorCode.INVALID_RECORD)

    async def three_partitions() -> None:
        async with producer.transaction() as txn:
            await txn.send("t", b"refused", partition=0)
            while broker.scripts["Produce"]:  # noqa: ASYNC110 - nobody tells of it
                await trio.sleep(0.001)
            await txn.send("t", b"being added, behind that", partition=1)
            await trio.testing.wait_all_tasks_blocked()
            await txn.send("t", b"to be added after that", partition=2)
            both_handed_in.set()

    async with client(broker) as kafka, kafka.transactional_producer("x") as producer:
        broker.scripts["Produce"] = [refuse]
        began = trio.current_time()
        with pytest.raises(RecordRejectedError, match="rejected"):
            await three_partitions()
        assert trio.current_time() - began < 60
        async with producer.transaction() as txn:
            await txn.send("t", b"good", partition=2)
    assert broker.logs[2] == [b"good"]


# -- pauses


async def test_a_lost_connection_with_five_requests_is_one_loss(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """The pause is the first one, not the fifth, which is sixteen times as long."""
    broker = await script()
    slow = {"retry_backoff": 2, "retry_backoff_max": 1000}
    async with client(broker, **slow) as kafka, kafka.producer(batch_size=200) as producer:
        await producer.send("t", b"first")
        broker.scripts["Produce"] = [SILENCE] * 4 + [HANG_UP]
        began = trio.current_time()
        await producer.send_many("t", [(None, b"%03d" % n) for n in range(40)])
        assert trio.current_time() - began < 20
    assert broker.logs[0] == [b"first"] + [b"%03d" % n for n in range(40)]


async def test_one_answer_that_refuses_six_partitions_is_one_refusal(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await script(partitions=6)
    slow = {"retry_backoff": 2, "retry_backoff_max": 1000}
    async with client(broker, **slow) as kafka, kafka.producer() as producer:
        broker.scripts["Produce"] = [broker.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)]
        began = trio.current_time()
        async with producer.batch() as batch:
            for number in range(6):
                await batch.send("t", b"a", partition=number)
        assert trio.current_time() - began < 40
    assert broker.names("Produce") == ["Produce"] * 2


async def test_a_broker_that_never_takes_our_number_is_asked_with_pauses(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """Each answer costs an epoch (P7). It was asked again at once, as fast as it could answer, till the deadline."""
    broker = await script()
    broker.scripts["Produce"] = [broker.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)] * 500
    async with client(broker) as kafka, kafka.producer(delivery_timeout=20) as producer:
        with pytest.raises(DeliveryError):
            await producer.send("t", b"a")
        assert len(broker.names("Produce")) < 400
