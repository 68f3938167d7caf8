"""What begins with a block ends with it, also where the block is never reached; and nobody waits for what has ended."""

import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
import trio.testing

import fencepost
from fencepost import AuthorizationError, ErrorCode, KafkaError, RetriableError
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdResponse
from tests.kit.scripted_broker import SILENCE, ScriptedBroker

Script = Callable[..., Any]
Opened = Callable[[fencepost.Client], AbstractAsyncContextManager[Any]]


def client(broker: ScriptedBroker, **options: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), **{"retry_backoff": 0.001, **options})


def tasks(kafka: fencepost.Client) -> int:
    return len(kafka._tasks._scopes)


@pytest.mark.parametrize(
    "opened",
    [
        lambda kafka: kafka.producer(),
        lambda kafka: kafka.transactional_producer("x"),
        lambda kafka: kafka.consumer("t"),
        lambda kafka: kafka.consumer("t", group="g", enable_auto_commit=True),
        lambda kafka: kafka.consumer("t", group="g", group_protocol="consumer"),
    ],
    ids=["producer", "transactional", "consumer", "classic", "consumer-protocol"],
)
async def test_whoever_is_cancelled_on_the_way_in_leaves_no_task(script: Script, opened: Opened) -> None:
    """A membership above all: it would hold partitions that nobody reads, until `max_poll_interval`."""
    broker = await script()
    reached = False
    async with client(broker) as kafka:
        with trio.CancelScope() as scope:
            scope.cancel()
            async with opened(kafka):
                reached = True
                await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert tasks(kafka) == 0
    assert scope.cancelled_caught
    assert not reached
    assert broker.names("JoinGroup", "ConsumerGroupHeartbeat") == []


async def test_a_consumer_whose_topic_is_not_there_leaves_no_task(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """What is left are the client's own: a connection, and who looks after it."""
    broker, rounds = await script(), 8
    async with client(broker, default_api_timeout=0.1) as kafka:
        for _ in range(rounds):
            with pytest.raises(RetriableError, match="nowhere"):
                async with kafka.consumer("nowhere"):
                    pass
        assert tasks(kafka) < rounds


async def test_a_transactional_producer_that_may_not_open_leaves_no_connection(script: Script) -> None:
    broker = await script()
    refused = InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    broker.scripts["InitProducerId"] = [refused] * 3
    async with client(broker) as kafka:
        for _ in range(3):
            with pytest.raises(AuthorizationError):
                async with kafka.transactional_producer("x"):
                    pass
        connections = kafka._cluster._connections
        assert [purpose for _, purpose in connections._open] == [""]
        assert [purpose for _, purpose in connections._connecting] == [""]


async def test_whoever_waits_for_room_hears_that_the_producer_was_closed(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """At once: what takes the room is unanswered, and will never be answered."""
    broker = await script()
    broker.scripts["Produce"] = [SILENCE]
    heard: list[float] = []

    async def wait_for_room(producer: fencepost.Producer[bytes, bytes]) -> None:
        began = trio.current_time()
        with pytest.raises(KafkaError, match="closed"):
            await producer.submit("t", b"y" * 900)
        heard.append(trio.current_time() - began)

    async def work(nursery: trio.Nursery) -> None:
        async with client(broker) as kafka, kafka.producer(buffer_memory=1024, max_block=600) as producer:
            await producer.submit("t", b"x" * 900)
            nursery.start_soon(wait_for_room, producer)
            while not producer.metrics().waiting_threads:  # noqa: ASYNC110 - nobody tells of it
                await trio.sleep(0.01)
            raise ZeroDivisionError

    async with trio.open_nursery() as nursery:
        try:
            await work(nursery)
        except ZeroDivisionError:
            pass
    assert heard[0] < 60
