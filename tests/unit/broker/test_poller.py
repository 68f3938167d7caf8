"""Serving connections where trio waits: who is served when, and that both ways of waiting are alike."""

import gc
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from fencepost.broker.network import poller as polling
from fencepost.broker.network.poller import Poller, Registration, Work, poller_of_loop, register
from tests.kit.waiting import soon

DIRECT = pytest.mark.skipif(not hasattr(polling.select, "epoll"), reason="only where the system has epoll")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


class Reader:
    """A connection that notes what it receives; some of it needs its task."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.registration: Registration
        self.served: list[bytes] = []
        self.worked: list[bytes] = []
        self.sent = 0

    def serve_input(self) -> Work | None:
        data = self.sock.recv(100)
        self.served.append(data)
        if data == b"broken":
            raise ValueError("broken")
        return self.work(data) if data.startswith(b"task") or not data else None

    def send_responses(self) -> Work | None:
        self.sent += 1
        return None

    async def work(self, data: bytes) -> bool:
        self.worked.append(data)
        await trio.lowlevel.checkpoint()
        return bool(data)

    async def run(self, poller: Poller | None) -> None:
        self.registration = register(poller, self.sock, self)
        try:
            while await (await self.registration.wait()):
                pass
        finally:
            self.registration.close()


@pytest.fixture(params=["direct", "by tasks"])
def poller(request: pytest.FixtureRequest) -> Callable[[], Poller | None]:
    """Both ways to wait, to be chosen in the test's loop. The direct one needs the system's clock."""
    if request.param == "by tasks":
        return lambda: None
    if not hasattr(polling.select, "epoll"):
        pytest.skip("only where the system has epoll")
    return poller_of_loop


async def test_what_comes_is_served_and_what_needs_a_task_gets_one(poller: Any, pair: Any) -> None:
    ours, theirs = pair
    reader = Reader(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.run, poller())
        for data in (b"one", b"task", b"two"):
            theirs.send(data)
            await soon(lambda data=data: reader.served[-1:] == [data])
        theirs.close()
    assert reader.served == [b"one", b"task", b"two", b""]
    assert reader.worked == [b"task", b""]


@DIRECT
async def test_responses_leave_after_every_readable_connection_was_served(pair: Any) -> None:
    """One flush of the disk covers what all of them appended, and a client of several wakes once."""
    ours, theirs = pair
    calls: list[str] = []

    class Noting(Reader):
        def serve_input(self) -> Work | None:
            work = super().serve_input()
            calls.append("serve")
            return work

        def send_responses(self) -> Work | None:
            calls.append("send")
            return None

    other_ours, other_theirs = socket.socketpair()
    with other_ours, other_theirs:
        other_ours.setblocking(False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Noting(ours).run, poller_of_loop())
            nursery.start_soon(Noting(other_ours).run, poller_of_loop())
            await trio.sleep(0.01)
            theirs.send(b"one")
            other_theirs.send(b"two")
            await soon(lambda: len(calls) == 4)
            nursery.cancel_scope.cancel()
    assert calls == ["serve", "serve", "send", "send"]


async def test_an_error_is_raised_in_the_task(poller: Any, pair: Any) -> None:
    ours, theirs = pair
    theirs.send(b"broken")
    with pytest.raises(ValueError, match="broken"), trio.fail_after(100):
        await Reader(ours).run(poller())


async def test_a_task_that_is_cancelled_is_told_of_nothing_more(poller: Any, pair: Any) -> None:
    ours, theirs = pair
    reader = Reader(ours)
    with trio.move_on_after(0.05):
        await reader.run(poller())
    theirs.send(b"one")
    await trio.sleep(0.02)
    assert reader.served == []


async def test_nothing_is_served_while_the_task_works(poller: Any, pair: Any) -> None:
    ours, theirs = pair
    reader = Reader(ours)
    working, done = trio.Event(), trio.Event()

    async def work(data: bytes) -> bool:
        working.set()
        await done.wait()
        return bool(data)

    reader.work = work  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.run, poller())
        theirs.send(b"task")
        await working.wait()
        theirs.send(b"one")
        await trio.sleep(0.02)
        assert reader.served == [b"task"]
        done.set()
        await soon(lambda: reader.served[-1] == b"one")
        theirs.close()


async def test_a_pause_lasts_until_the_answer_is_there(poller: Any, pair: Any) -> None:
    ours, theirs = pair

    class Pausing(Reader):
        def serve_input(self) -> Work | None:
            work = super().serve_input()
            if self.served[-1].startswith(b"pause"):
                self.registration.pause_reading()
            return work

    reader = Pausing(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.run, poller())
        theirs.send(b"pause one")
        await soon(lambda: reader.served == [b"pause one"])
        theirs.send(b"pause two")
        await trio.sleep(0.02)
        assert reader.served == [b"pause one"]
        reader.registration.resume_reading(None)
        await soon(lambda: reader.served == [b"pause one", b"pause two"])
        reader.registration.resume_reading(reader.work(b"task"))
        await soon(lambda: reader.worked == [b"task"])
        theirs.send(b"three")
        await soon(lambda: reader.served[-1] == b"three")
        theirs.close()


async def test_work_for_a_task_that_is_gone_is_dropped(
    poller: Any, pair: Any, recwarn: pytest.WarningsRecorder
) -> None:
    ours, theirs = pair

    class Pausing(Reader):
        def serve_input(self) -> Work | None:
            self.registration.pause_reading()
            return super().serve_input()

    reader = Pausing(ours)
    theirs.send(b"one")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.run, poller())
            await soon(lambda: reader.served == [b"one"])
            scope.cancel()
            reader.registration.resume_reading(reader.work(b"task"))
    assert reader.worked == []
    assert not [one for one in recwarn if "never awaited" in str(one.message)]


@DIRECT
async def test_trio_goes_on_while_connections_are_busy_and_while_they_are_silent(pair: Any) -> None:
    """Timers and other tasks get their turns beside a connection that never pauses; and with none that speaks."""
    ours, theirs = pair

    class Talker(Reader):
        def serve_input(self) -> Work | None:
            data = self.sock.recv(100)
            self.served.append(data)
            theirs.send(data)
            return None

    talker = Talker(ours)
    theirs.send(b"again")
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talker.run, poller_of_loop())
            await soon(lambda: len(talker.served) > 20)
            assert await trio.to_thread.run_sync(lambda: 7) == 7
            nursery.cancel_scope.cancel()
        await trio.sleep(0.02)


def test_a_clock_of_its_own_keeps_to_tasks() -> None:
    """A simulation decides itself when what happens."""

    async def main() -> bool:
        return poller_of_loop() is not None

    assert not trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@DIRECT
def test_a_trio_that_is_not_known_keeps_to_tasks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unlike(runner: Any) -> None:
        raise AttributeError("EpollIOManager has no attribute '_epoll'")

    monkeypatch.setattr(polling, "Poller", type("Poller", (), {"__init__": lambda self, runner: unlike(runner)}))

    async def main() -> bool:
        return poller_of_loop() is not None

    with caplog.at_level(logging.WARNING):
        assert not trio.run(main)
    assert "no attribute '_epoll'" in caplog.text


@DIRECT
def test_two_of_a_loop_share_a_poller_and_the_next_loop_has_its_own() -> None:
    """The loop's files are closed with it."""

    async def main() -> Any:
        assert poller_of_loop() is poller_of_loop()
        return poller_of_loop()

    first, second = trio.run(main), trio.run(main)
    assert first is not second
    assert first._epoll.closed
    assert second._epoll.closed


async def test_work_that_is_dropped_takes_what_it_was_given_with_it(recwarn: pytest.WarningsRecorder) -> None:
    """A stop of a broker left `coroutine 'Deferred.wait' was never awaited` in the log."""

    async def reply() -> int:
        await trio.lowlevel.checkpoint()
        return 1

    async def respond(waiting: Any) -> bool:
        return bool(await waiting)

    async def finish(unfinished: Any) -> bool:
        return bool(await unfinished)

    polling.discard(finish(respond(reply())))
    gc.collect()
    assert [str(one.message) for one in recwarn] == []
