"""Our tag 1000 of DescribeLogDirs: the ends of all logs at one instant, for a backup (decision 0068)."""

import time

import pytest
from trio.testing import MockClock

from fencepost.broker.handlers import log_ends
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api35_describe_log_dirs import DescribeLogDirsRequest
from tests.unit.broker.txn_node import FIRST, TxnNode, running

LOG_DIRS = 35


async def ends_of(on: TxnNode, version: int = 5, **fields: int) -> dict[tuple[str, int], int]:
    answer = await on.ask(LOG_DIRS, version, DescribeLogDirsRequest(**fields))
    assert (answer.error_code, answer.results) == (ErrorCode.NONE, [])
    return {
        (topic.name, one.partition_index): one.high_watermark
        for topic in answer.ends.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", [2, 5])
async def test_the_ends_are_the_high_watermarks(version: int, autojump_clock: MockClock) -> None:
    async with running() as on:
        held = await on.identity()
        assert ("t", 0) not in await ends_of(on, version, pause_ms=0)  # it has no log yet
        await on.add(3, held, FIRST)
        assert await on.produce(9, held, FIRST, b"v", 0) == ErrorCode.NONE
        assert (await ends_of(on, version, pause_ms=0))["t", 0] == 1


async def test_a_pause_blocks_the_event_loop_and_ends_by_itself(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is asked for longer than the longest."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    async with running() as on:
        await ends_of(on, pause_ms=50)
        await ends_of(on, pause_ms=60_000)
    assert slept == [0.05, log_ends.PAUSE_MS_MAX / 1000]


async def test_a_pause_is_refused_to_clients_of_other_machines(autojump_clock: MockClock) -> None:
    """As requests of brokers are (R12): a client could stop the broker with it. Without a pause they may ask."""
    async with running() as on:
        far = on.seen_from("app", "10.0.0.9")
        answer = await far.ask(LOG_DIRS, 5, DescribeLogDirsRequest(pause_ms=1))
        assert (answer.error_code, answer.ends) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        assert await ends_of(far, pause_ms=0) == await ends_of(on, pause_ms=1)


async def test_without_the_tag_it_is_kafkas_answer(autojump_clock: MockClock) -> None:
    async with running() as on:
        answer = await on.ask(LOG_DIRS, 5, DescribeLogDirsRequest(topics=None))
        assert answer.ends is None
        assert [one.name for one in answer.results[0].topics].count("t") == 1
