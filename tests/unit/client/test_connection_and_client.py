"""Connections that go wrong, and failures of background tasks: nothing hangs, nothing is swallowed."""

import asyncio
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
import trio

import fencepost
from fencepost import KafkaError, RetriableError
from fencepost.client.background import shielded
from fencepost.client.network.retry import Backoff, RetryPolicy
from tests.kit.scripted_broker import ScriptedBroker

Script = Callable[..., Any]
QUICK = {"default_api_timeout": 0.3, "retry_backoff": 0.001}


def client(broker: ScriptedBroker, **options: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), **{**QUICK, **options})


async def test_an_answer_that_makes_no_sense_is_told_with_api_and_node(script: Script) -> None:
    broker = await script()
    broker.scripts["Metadata"] = [b"\x01\x02\x03"]
    async with client(broker) as kafka:
        with pytest.raises(KafkaError, match="cannot be read") as damaged:
            await kafka._cluster.refresh(["t"])
        assert damaged.value.api == "Metadata"
        assert await kafka._cluster.refresh(["t"]) == {}, "a fresh connection is made"


@pytest.mark.parametrize("size", [-1, 0, 3, 1 << 30])
async def test_a_frame_of_an_impossible_size_ends_the_connection(
    nursery: trio.Nursery, size: int, patient_clock: trio.testing.MockClock
) -> None:
    """Bounded: no buffer is taken for what a peer only claims."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(struct.pack(">i", size))
        await trio.sleep_forever()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, serve, listeners)
    port = listeners[0].socket.getsockname()[1]
    async with fencepost.Client(f"127.0.0.1:{port}", **QUICK) as kafka:  # type: ignore[arg-type]
        with pytest.raises(RetriableError, match=f"a frame of {size} bytes"):
            await kafka._cluster.policy.run(kafka._cluster.refresh)


async def test_an_answer_to_nothing_ends_the_connection(
    nursery: trio.Nursery, patient_clock: trio.testing.MockClock
) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(struct.pack(">ii", 4, 4711))
        await trio.sleep_forever()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, serve, listeners)
    port = listeners[0].socket.getsockname()[1]
    async with fencepost.Client(f"127.0.0.1:{port}", **QUICK) as kafka:  # type: ignore[arg-type]
        with pytest.raises(RetriableError, match="unknown correlation id 4711"):
            await kafka._cluster.policy.run(kafka._cluster.refresh)


async def test_no_broker_there_is_retriable_until_the_deadline(patient_clock: trio.testing.MockClock) -> None:
    async with fencepost.Client("127.0.0.1:1", **QUICK) as kafka, kafka.admin() as admin:  # type: ignore[arg-type]
        with pytest.raises(RetriableError, match=r"gave up on listing topics after 0\.3 s"):
            await admin.list_topics()


async def test_the_second_bootstrap_server_serves_when_the_first_is_away(script: Script) -> None:
    broker = await script()
    async with fencepost.Client(["127.0.0.1:1", broker.address], **QUICK) as kafka:  # type: ignore[arg-type]
        assert await kafka._cluster.refresh(["t"]) == {}


async def test_answers_out_of_the_middle_of_the_stream_are_put_together(script: Script) -> None:
    """Frames are cut and joined by the network as it likes; large ones get a buffer of their own."""
    broker = await script(partitions=5000)
    async with client(broker) as kafka:
        await kafka._cluster.refresh(["t"])
        assert len(kafka._cluster.topics["t"].partitions) == 5000


async def test_a_version_that_both_do_not_speak_is_told(script: Script) -> None:
    broker = await script()
    broker.highest = {"Produce": 2}
    async with client(broker) as kafka, kafka.producer() as producer:
        with pytest.raises(fencepost.FatalError, match=r"supports Produce 3 to 2"):
            await producer.send("t", b"x")
        with pytest.raises(fencepost.FatalError):
            await producer.send("t", b"x")


async def test_the_programs_own_exception_comes_out_bare(script: Script) -> None:
    """One nursery inside, but no ExceptionGroup around what the program raised."""
    broker = await script()
    with pytest.raises(ZeroDivisionError):
        async with client(broker):
            raise ZeroDivisionError


async def test_a_failing_background_task_cancels_the_program_and_is_raised(script: Script) -> None:
    broker = await script()

    async def fail() -> None:
        raise ZeroDivisionError

    async def work() -> None:
        async with client(broker) as kafka:
            kafka._tasks.start_soon(fail)
            await trio.sleep_forever()

    with trio.fail_after(100), pytest.raises(ZeroDivisionError):
        await work()


async def test_both_failures_are_told_together(script: Script) -> None:
    broker = await script()

    async def fail() -> None:
        raise ZeroDivisionError

    async def work() -> None:
        async with client(broker) as kafka:
            kafka._tasks.start_soon(fail)
            try:
                await trio.sleep_forever()
            finally:
                raise KeyError("mine")

    with pytest.raises(BaseExceptionGroup) as both:
        await work()
    assert both.value.split(ZeroDivisionError)[0] is not None
    assert both.value.split(KeyError)[0] is not None


async def test_work_under_way_outlives_a_cancelled_caller(patient_clock: trio.testing.MockClock) -> None:
    finished: list[str] = []

    async def work() -> None:
        await trio.sleep(0.05)
        finished.append("yes")

    with trio.move_on_after(0.01) as scope:
        await shielded(5, work)
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert finished == ["yes"]
    began = trio.current_time()
    assert await shielded(5, trio.sleep_forever) is None
    assert trio.current_time() - began == pytest.approx(5)


def test_work_under_way_outlives_every_cancellation_of_asyncio() -> None:
    finished: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.05)
        finished.append("yes")

    async def main() -> BaseException | None:
        task = asyncio.create_task(shielded(5, work))
        for _ in range(3):
            await asyncio.sleep(0.01)
            task.cancel()
        return await task

    assert isinstance(asyncio.run(main()), asyncio.CancelledError)
    assert finished == ["yes"]


def test_pauses_grow_to_a_limit_with_a_seeded_jitter() -> None:
    pauses = [Backoff(10, 1000, random.Random(5)) for _ in range(2)]
    rows = [[backoff.next_delay() for _ in range(12)] for backoff in pauses]
    assert rows[0] == rows[1], "one seed is one world"
    for step, pause in enumerate(rows[0]):
        plain = min(0.01 * 2**step, 1.0)
        assert 0.8 * plain <= pause <= 1.2 * plain


async def test_retrying_stops_at_what_can_not_be_retried(patient_clock: trio.testing.MockClock) -> None:
    policy = RetryPolicy(10, 1000, 5000, random.Random(1))
    calls = []

    async def attempt() -> None:
        calls.append(trio.current_time())
        raise RetriableError("not yet") if len(calls) < 4 else KafkaError("never")

    with pytest.raises(KafkaError, match="never"):
        await policy.run(attempt)
    assert len(calls) == 4


async def test_a_call_that_hangs_ends_at_the_deadline(patient_clock: trio.testing.MockClock) -> None:
    policy = RetryPolicy(10, 1000, 5000, random.Random(1))
    with pytest.raises(RetriableError, match="no response within 5 s"):
        await policy.run(trio.sleep_forever, what="the call")
