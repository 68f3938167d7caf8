"""Bounds of connections and bytes (Kafka's ConnectionQuotas; `queued.max.request.bytes`), and of log lines."""

import io
import logging
import sys
from types import SimpleNamespace

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from fencepost.broker.byte_budget import ByteBudget
from fencepost.broker.config.broker_config import ConfigError, load_config
from fencepost.broker.network.arrivals import PartialRequest
from fencepost.broker.network.connection_limits import ConnectionLimits
from fencepost.broker.network.frames import KEPT_BYTES, FrameBuffer, NoRoom
from fencepost.broker.node import Node
from fencepost.cli.log_limit import LINES_PER_SECOND, LimitedHandler
from tests.kit.waiting import soon


def settings(**given: object) -> SimpleNamespace:
    values = {
        "max_connections": 100,
        "max_connections_per_ip": 100,
        "max_connections_per_ip_overrides": (),
        "max_connection_creation_rate": 1000,
    }
    return SimpleNamespace(**(values | given))


def in_trio(function: object, clock: MockClock | None = None) -> None:
    trio.run(function, clock=clock)  # type: ignore[arg-type]


def test_connections_are_counted_in_all_and_by_address() -> None:
    """As Kafka's ConnectionQuotas.inc: an override replaces max.connections.per.ip for its address."""

    async def main() -> None:
        overrides = ("10.0.0.2:1", "[::1]:4")
        limits = ConnectionLimits(
            settings(max_connections=5, max_connections_per_ip=2, max_connections_per_ip_overrides=overrides)
        )
        assert [limits.begin("10.0.0.1") for _ in range(3)] == [None, None, "max.connections.per.ip=2"]
        assert [limits.begin("10.0.0.2") for _ in range(2)] == [None, "max.connections.per.ip.overrides=1"]
        assert [limits.begin("::1") for _ in range(3)] == [None, None, "max.connections=5"]
        limits.end("10.0.0.1")
        assert limits.begin("10.0.0.2") == "max.connections.per.ip.overrides=1"
        assert limits.begin("10.0.0.1") is None

    in_trio(main)


def test_connections_of_other_cores_are_not_counted() -> None:
    """Kafka's ConnectionQuotas lets brokers connect when clients have all connections (protectedListener)."""

    async def main() -> None:
        limits = ConnectionLimits(settings(max_connections=1, max_connections_per_ip=1, max_connection_creation_rate=1))
        assert [limits.begin(""), limits.begin("10.0.0.1"), limits.begin("")] == [None, None, None]
        limits.end("")
        assert limits.begin("10.0.0.2") == "max.connections=1"
        began = trio.current_time()
        for _ in range(9):
            await limits.next_accept("")
        assert trio.current_time() == began

    in_trio(main, MockClock(autojump_threshold=0))


def test_the_creation_rate_delays_a_burst() -> None:
    """KIP-612: connections over max.connection.creation.rate wait to be accepted."""

    async def main() -> None:
        limits = ConnectionLimits(settings(max_connection_creation_rate=20))
        began = trio.current_time()
        for _ in range(60):
            await limits.next_accept("10.0.0.1")
        assert trio.current_time() - began == pytest.approx(2.0)

    in_trio(main, MockClock(autojump_threshold=0))


@pytest.mark.parametrize("entry", ["10.0.0.1", "10.0.0.1:x", ":5", "10.0.0.1:-1"])
def test_an_invalid_override_ends_the_start(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides.*is not HOST:CONNECTIONS"):
        load_config(assignments=[f"max.connections.per.ip.overrides={entry}"])


def test_a_buffer_grows_within_the_budget_of_all_connections() -> None:
    budget = ByteBudget(300 << 10)
    one, other = FrameBuffer(1 << 20, budget), FrameBuffer(1 << 20, budget)

    def fill(frames: FrameBuffer, size: int) -> None:
        frames.space()[:4] = (1 << 20).to_bytes(4, "big")
        while frames.pending_bytes < size:
            frames.received(len(frames.space()))

    fill(one, 200 << 10)
    assert budget.used == (256 << 10) - KEPT_BYTES
    with pytest.raises(NoRoom):
        fill(other, 200 << 10)
    assert other.pending_bytes >= 64 << 10, "small requests need no budget"
    one.close()
    fill(other, 200 << 10)
    other.close()
    assert budget.used == 0


def test_a_task_waits_for_bytes_and_a_response_has_a_least_size() -> None:
    async def main() -> None:
        budget = ByteBudget(100)
        assert budget.left(10) == 100
        budget.take(95)
        assert budget.left(10) == 10
        assert not budget.try_take(6)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(budget.take_later, 6)
            await trio.testing.wait_all_tasks_blocked()
            assert budget.is_short
            budget.give(1)
        assert (budget.is_short, budget.used) == (False, 100)
        assert ByteBudget(-1).try_take(1 << 60)

    in_trio(main)


async def test_bytes_go_to_the_first_task_that_they_suffice_for() -> None:
    """All were woken, and all but one waited again: a thousand connections cost a thousand wakes for each request."""
    budget, got = ByteBudget(100), []
    budget.take(100)

    async def take(name: str, count: int) -> None:
        await budget.take_later(count)
        got.append(name)

    async with trio.open_nursery() as nursery:
        for name, count in (("first", 50), ("second", 5), ("third", 5)):
            nursery.start_soon(take, name, count)
            await trio.testing.wait_all_tasks_blocked()
        budget.give(6)
        assert budget.used == 99
        await trio.testing.wait_all_tasks_blocked()
        assert got == ["second"]
        budget.give(50)
        await trio.testing.wait_all_tasks_blocked()
        assert got == ["second", "first"]
        budget.give(4)
        await trio.testing.wait_all_tasks_blocked()
        assert (got, budget.used, budget.is_short) == (["second", "first", "third"], 100, False)


async def test_a_task_that_no_longer_waits_takes_nothing() -> None:
    budget = ByteBudget(100)
    budget.take(100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.take_later, 10)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    budget.give(10)
    assert (budget.used, budget.is_short) == (90, False)


async def test_a_connection_waits_for_memory_however_much_others_take_and_give() -> None:
    """Each time was one more nested coroutine: after a thousand the connection ended with RecursionError."""
    small = {"storage": "memory", "listeners": "PLAINTEXT://127.0.0.1:0"}
    small |= {"queued.max.request.bytes": "1000000", "socket.request.max.bytes": "1000000"}
    node = Node(load_config(assignments=[f"{name}={value}" for name, value in small.items()]))
    async with trio.open_nursery() as nursery:
        endpoint = await nursery.start(node.run)
        assert node.server is not None
        budget = node.server.request_bytes
        others = int(budget.limit) - budget.used
        budget.take(others)
        async with await trio.open_tcp_stream(endpoint.host, endpoint.port) as client:
            await client.send_all((900_000).to_bytes(4, "big") + bytes(200_000))
            await soon(lambda: budget.is_short)
            for _ in range(3 * sys.getrecursionlimit()):
                budget.take(1)
                budget.give(1)
                await trio.lowlevel.checkpoint()
            assert [one.arrival.waits_for_room for one in node.server.connections] == [True]
            budget.give(others)
            await soon(lambda: budget.used > 100_000)
        nursery.cancel_scope.cancel()


def test_an_unfinished_request_has_an_age() -> None:
    frames = FrameBuffer(1 << 20, ByteBudget(-1))
    arrival = PartialRequest(frames, ByteBudget(-1))
    assert arrival.since(10.0, 0, True) == 10.0
    frames.space()[:5] = b"\0\0\0\2x"
    frames.received(5)
    assert arrival.since(11.0, 0, True) == 10.0, "it began to arrive after the call before"
    assert arrival.since(70.0, 0, True) == 10.0
    assert arrival.since(71.0, 1, True) == 71.0, "it was handled, and another one arrives"
    assert arrival.since(99.0, 1, False) == 99.0, "the connection reads nothing while it handles a request"


def test_a_flood_of_log_lines_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("fencepost.cli.log_limit.time.monotonic", lambda: now)
    written = io.StringIO()
    handler = LimitedHandler(written)
    logger = logging.Logger("fencepost.test")
    logger.addHandler(handler)
    for number in range(500):
        logger.warning("closing connection peer=%s cause=%s", number, ValueError(str(number)))
        logger.warning("another cause")
    logger.warning("closing connection peer=%s cause=%s", 0, KeyError("not the same error"))
    assert len(written.getvalue().splitlines()) == 2 * LINES_PER_SECOND + 1
    now = 101.5
    logger.warning("another cause")
    lines = written.getvalue().splitlines()
    assert "left out 490 more lines within a second like: closing connection peer=0 cause=0" in lines
    assert lines[-1] == "another cause"
    logger.name = "fencepost.audit"
    before = len(lines)
    for _ in range(50):
        logger.warning("denied")
    assert len(written.getvalue().splitlines()) == before + 50, "the audit log is complete"
