"""What the client tries again and again it says in the log: after a second, then every ten seconds at most."""

import logging
import random
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

import fencepost
from fencepost import ErrorCode, RetriableError, TopicPartition
from fencepost.client.errors import ConnectionLostError
from fencepost.client.network.wire import open_socket
from fencepost.protocol.messages.api00_produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.kit.scripted_broker import ScriptedBroker

Script = Callable[..., Any]
FIRST = "has failed for [12] s"
"""The first warning comes with the first failure after a second; a pause, with its jitter, is up to 1.2 s."""


async def refused(host: str, port: int, timeout_s: float) -> socket.socket:
    """Nothing listens there."""
    await trio.lowlevel.checkpoint()
    raise ConnectionLostError(f"{host}:{port}: refused", sent=False)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_a_broker_that_is_down_is_one_warning_for_all_calls(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    client = fencepost.Client("one.example:9092", dial=refused, random=random.Random(1))
    async with client as kafka, kafka.producer(max_block=30) as producer, trio.open_nursery() as nursery:
        for topic in ("a", "b", "c"):
            nursery.start_soon(_send_in_vain, producer, topic)
        await trio.sleep(3)
        [first] = warnings_in(caplog)
        assert first.startswith("looking for topic ")
        assert "has failed for 1 s: one.example:9092: refused" in first
        assert first.endswith("The client tries again for 29 s more")
        await trio.sleep(26)
        assert len(warnings_in(caplog)) == 3


async def _send_in_vain(producer: "fencepost.Producer[bytes, bytes]", topic: str) -> None:
    with pytest.raises(RetriableError, match="gave up on looking for topic"):
        await producer.send(topic, b"v")


@pytest.mark.parametrize("stay_s", [0.3, 5])
async def test_the_return_of_a_broker_is_a_warning_as_its_loss_is(
    script: Script, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, stay_s: float
) -> None:
    """A log that shows warnings only said that the connection was lost, and not that it came back."""
    broker: ScriptedBroker = await script()
    returns_at = trio.current_time() + stay_s

    async def dial(host: str, port: int, timeout_s: float) -> socket.socket:
        if trio.current_time() < returns_at:
            return await refused(host, port, timeout_s)
        return await open_socket(host, port, timeout_s)

    async with fencepost.Client(broker.address, dial=dial) as kafka, kafka.producer() as producer:
        await producer.send("t", b"v")
        await producer.send("t", b"v")
    found = warnings_in(caplog)
    if stay_s < 1:
        assert found == []
    else:
        assert re.search(FIRST, found[0])
        assert found[1:] == [f"{broker.address} can be reached again"]


async def test_a_call_that_succeeds_within_a_second_says_nothing(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [RetriableError("not yet")] * 3

    async def attempt() -> str:
        await trio.sleep(0.1)
        if failures:
            raise failures.pop()
        return "done"

    async with fencepost.Client("one.example:9092", dial=refused) as kafka:
        assert await kafka._cluster.policy.run(attempt) == "done"
    assert warnings_in(caplog) == []


async def test_a_producer_says_that_the_topic_does_not_exist(
    script: Script, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker: ScriptedBroker = await script()
    async with fencepost.Client(broker.address) as kafka, kafka.producer(max_block=5) as producer:
        with pytest.raises(RetriableError, match="`fencepost topic create nope` creates it"):
            await producer.send("nope", b"v")
    [warning] = warnings_in(caplog)
    assert "topic 'nope' does not exist; `fencepost topic create nope` creates it" in warning


async def test_a_consumer_without_a_group_says_so_too(
    script: Script, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker: ScriptedBroker = await script()
    async with fencepost.Client(broker.address) as kafka:
        with trio.move_on_after(5):
            async with kafka.consumer("nope"):
                pytest.fail("the topic is there")
    [warning] = warnings_in(caplog)
    assert "topic 'nope' does not exist; `fencepost topic create nope` creates it" in warning


async def test_a_consumer_that_is_assigned_an_unknown_topic_says_so(
    script: Script, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker: ScriptedBroker = await script()
    async with fencepost.Client(broker.address) as kafka, kafka.consumer() as consumer:
        consumer.assign([TopicPartition("nope", 0)])
        with trio.move_on_after(5):
            await anext(consumer.batches())
    [warning] = warnings_in(caplog)
    assert re.match(f"finding the consumer's partitions {FIRST}", warning)
    assert "topic 'nope' does not exist" in warning


async def test_records_that_a_broker_does_not_take_are_warned_of(
    script: Script, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker: ScriptedBroker = await script()
    part = PartitionProduceResponse(index=0, error_code=ErrorCode.NOT_ENOUGH_REPLICAS, base_offset=-1)
    topic = TopicProduceResponse(name="t", topic_id=broker.topic_id, partition_responses=[part])
    broker.scripts["Produce"] = [ProduceResponse(responses=[topic])] * 10_000
    async with fencepost.Client(broker.address) as kafka, kafka.producer(delivery_timeout=5) as producer:
        with pytest.raises(fencepost.DeliveryError):
            await producer.send("t", b"v")
    [warning] = warnings_in(caplog)
    assert re.match(f"sending to t-0 {FIRST}", warning)
    assert "NOT_ENOUGH_REPLICAS" in warning
