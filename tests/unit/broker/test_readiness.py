"""Serving connections where trio waits: who is served when, and that both ways of waiting are alike."""

import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from fencepost.broker.network import poller as readiness
from fencepost.broker.network.poller import Readiness, Seat, Work

DIRECT = pytest.mark.skipif(not hasattr(readiness.select, "epoll"), reason="only where the system has epoll")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


class Guest:
    """A connection that notes what it receives; some of it needs its task."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.seat: Seat
        self.served: list[bytes] = []
        self.worked: list[bytes] = []

    def serve(self) -> Work | None:
        data = self.sock.recv(100)
        self.served.append(data)
        if data == b"broken":
            raise ValueError("broken")
        return self.work(data) if data.startswith(b"task") or not data else None

    async def work(self, data: bytes) -> bool:
        self.worked.append(data)
        await trio.lowlevel.checkpoint()
        return bool(data)

    async def sit(self, at: Readiness) -> None:
        self.seat = at.seat(self.sock, self.serve)
        try:
            while await (await self.seat.wait()):
                pass
        finally:
            self.seat.leave()


async def until(reached: Callable[[], bool]) -> None:
    with trio.fail_after(100):
        while not reached():  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(0.001)


@pytest.fixture(params=["direct", "by tasks"])
def at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Readiness]:
    """Both ways. The direct one needs the system's clock."""
    if request.param == "by tasks":
        monkeypatch.setattr(readiness, "_relay", lambda: None)
    elif not hasattr(readiness.select, "epoll"):
        pytest.skip("only where the system has epoll")
    return Readiness


async def test_what_comes_is_served_and_what_needs_a_task_gets_one(at: Any, pair: Any) -> None:
    ours, theirs = pair
    guest = Guest(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(guest.sit, at())
        for data in (b"one", b"task", b"two"):
            theirs.send(data)
            await until(lambda data=data: guest.served[-1:] == [data])
        theirs.close()
    assert guest.served == [b"one", b"task", b"two", b""]
    assert guest.worked == [b"task", b""]


async def test_an_error_is_raised_in_the_task(at: Any, pair: Any) -> None:
    ours, theirs = pair
    theirs.send(b"broken")
    with pytest.raises(ValueError, match="broken"), trio.fail_after(100):
        await Guest(ours).sit(at())


async def test_a_task_that_is_cancelled_is_told_of_nothing_more(at: Any, pair: Any) -> None:
    ours, theirs = pair
    guest = Guest(ours)
    with trio.move_on_after(0.05):
        await guest.sit(at())
    theirs.send(b"one")
    await trio.sleep(0.02)
    assert guest.served == []


async def test_nothing_is_served_while_the_task_works(at: Any, pair: Any) -> None:
    ours, theirs = pair
    guest = Guest(ours)
    working, done = trio.Event(), trio.Event()

    async def work(data: bytes) -> bool:
        working.set()
        await done.wait()
        return bool(data)

    guest.work = work  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(guest.sit, at())
        theirs.send(b"task")
        await working.wait()
        theirs.send(b"one")
        await trio.sleep(0.02)
        assert guest.served == [b"task"]
        done.set()
        await until(lambda: guest.served[-1] == b"one")
        theirs.close()


@DIRECT
async def test_a_pause_lasts_until_the_answer_is_there(pair: Any) -> None:
    ours, theirs = pair
    guest = Guest(ours)
    async with trio.open_nursery() as nursery:
        at = Readiness()
        assert at.is_direct
        nursery.start_soon(guest.sit, at)
        await until(lambda: hasattr(guest, "seat"))
        assert guest.seat.can_pause
        guest.seat.pause()
        theirs.send(b"one")
        await trio.sleep(0.02)
        assert guest.served == []
        guest.seat.resume(None)
        await until(lambda: guest.served == [b"one"])
        guest.seat.pause()
        guest.seat.resume(guest.work(b"task"))
        await until(lambda: guest.worked == [b"task"])
        theirs.close()


@DIRECT
async def test_work_for_a_task_that_is_gone_is_dropped(pair: Any, recwarn: pytest.WarningsRecorder) -> None:
    ours, _ = pair
    guest = Guest(ours)
    with trio.move_on_after(0.02):
        await guest.sit(Readiness())
    guest.seat.pause()
    guest.seat.resume(guest.work(b"task"))
    assert guest.worked == []
    assert not [one for one in recwarn if "never awaited" in str(one.message)]


@DIRECT
async def test_trio_goes_on_while_connections_are_busy_and_while_they_are_silent(pair: Any) -> None:
    """Timers and other tasks get their turns beside a connection that never pauses; and with none that speaks."""
    ours, theirs = pair

    class Talker(Guest):
        def serve(self) -> Work | None:
            data = self.sock.recv(100)
            self.served.append(data)
            theirs.send(data)
            return None

    talker = Talker(ours)
    theirs.send(b"again")
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talker.sit, Readiness())
            await until(lambda: len(talker.served) > 20)
            assert await trio.to_thread.run_sync(lambda: 7) == 7
            nursery.cancel_scope.cancel()
        await trio.sleep(0.02)


def test_a_clock_of_its_own_keeps_to_tasks() -> None:
    """A simulation decides itself when what happens."""

    async def main() -> bool:
        return Readiness().is_direct

    assert not trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@DIRECT
def test_a_trio_that_is_not_known_keeps_to_tasks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unlike(runner: Any) -> None:
        raise AttributeError("EpollIOManager has no attribute '_epoll'")

    monkeypatch.setattr(readiness, "_Relay", type("_Relay", (), {"__init__": lambda self, runner: unlike(runner)}))

    async def main() -> bool:
        return Readiness().is_direct

    with caplog.at_level(logging.WARNING):
        assert not trio.run(main)
    assert "no attribute '_epoll'" in caplog.text


@DIRECT
def test_two_of_a_loop_share_a_relay_and_the_next_loop_has_its_own() -> None:
    """The loop's files are closed with it."""

    async def main() -> Any:
        assert Readiness()._relay is Readiness()._relay
        return Readiness()._relay

    first, second = trio.run(main), trio.run(main)
    assert first is not second
    assert first._epoll.closed
    assert second._epoll.closed
