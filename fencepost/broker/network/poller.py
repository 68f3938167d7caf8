"""Waiting for what connections send: on Linux without trio's loop between a request and its response.

A task that waits in `trio.lowlevel.wait_readable` is woken by one turn of trio's loop: some forty calls of functions,
which take three times as long as receiving and sending do once another process has used the CPU's caches. Most
requests are answered by plain functions, so no task has to be woken for them: where trio waits for the system, the
`Poller` waits for the connections as well, and has them serve what has come right there. Only what has to wait for
something wakes its connection's task (docs/decisions/0024-requests-without-the-loop.md).

trio has no public way to do that, so `Poller` takes the place of its `io_manager`. It is small: `get_events` may return
early with nothing, and does what it did otherwise. Where trio or the system is not as expected, or the clock is not the
system's (a simulation decides itself what happens when), every connection's task waits by trio's public means.
"""

import logging
import select
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import outcome
import trio

logger = logging.getLogger(__name__)

Work = Coroutine[Any, Any, bool]
"""What a connection's task has to do; True: there may be more to come."""
Serve = Callable[[], Work | None]
"""Called when there is something to read: a plain function, whose result is for the connection's task."""

EVENTS_MAX = 128
BUSY_SECONDS = 0.005
"""So long requests are served without a pause before trio may look at its own again."""
PAUSE_SECONDS = 0.0001
"""A poller that waited so long for requests was not busy."""


class Registration(Protocol):
    """One connection's place in the waiting: `serve` is called whenever its socket has something to read."""

    async def wait(self) -> Work:
        """Serve what comes, until something of it needs the task. Cancelled here, the task loses nothing."""

    def pause_reading(self) -> None:
        """Serve nothing more until `resume_reading`, not even in `wait`: a request is to be answered first."""

    def resume_reading(self, work: Work | None) -> None:
        """Serve again, or have the task do `work` first. To be called by another task than the connection's."""

    def close(self) -> None:
        """The socket is about to be closed."""


class _TaskRegistration:
    """The connection's own task waits and serves."""

    def __init__(self, sock: socket.socket, serve: Serve) -> None:
        self._sock = sock
        self._serve = serve
        self._paused: trio.Event | None = None
        self._work: Work | None = None

    async def wait(self) -> Work:
        while True:
            if self._paused is not None:
                await self._paused.wait()
                self._paused = None
                work, self._work = self._work, None
            else:
                await trio.lowlevel.wait_readable(self._sock)
                work = self._serve()
            if work is not None:
                return work

    def pause_reading(self) -> None:
        self._paused = trio.Event()

    def resume_reading(self, work: Work | None) -> None:
        assert self._paused is not None
        self._work = work
        self._paused.set()

    def close(self) -> None:
        if self._work is not None:
            self._work.close()


class _PollerRegistration:
    """The connection's task sleeps while the poller serves."""

    __slots__ = ("_fd", "_paused", "_poller", "_serve", "_task", "_watched")

    def __init__(self, poller: "Poller", sock: socket.socket, serve: Serve) -> None:
        self._poller = poller
        self._fd = sock.fileno()
        self._serve = serve
        self._task: trio.lowlevel.Task | None = None
        self._watched = False
        self._paused = False

    async def wait(self) -> Work:
        if not self._paused:
            self._watch()
        self._task = trio.lowlevel.current_task()
        work: Work = await trio.lowlevel.wait_task_rescheduled(self._cancelled)
        return work

    def _cancelled(self, _: Callable[[], object]) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def ready(self) -> None:
        """There is something to read, or the other side is gone."""
        task = self._task
        if task is None or self._paused:  # busy with what came before: it asks again when that is done
            self.close()
            return
        try:
            work = self._serve()
        except Exception as error:  # noqa: BLE001 - the task raises it
            work = failed(error)
        if work is not None:
            self._task = None
            trio.lowlevel.reschedule(task, outcome.Value(work))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self, work: Work | None) -> None:
        self._paused = False
        if work is None:
            self._watch()
        elif self._task is None:  # it has been cancelled
            work.close()
        else:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task, outcome.Value(work))

    def _watch(self) -> None:
        if not self._watched:
            self._watched = True
            self._poller.watch(self._fd, self)

    def close(self) -> None:
        if self._watched:
            self._watched = False
            self._poller.forget(self._fd)


async def failed(error: Exception) -> bool:
    """Work that fails: a connection's task says what becomes of an error."""
    try:
        raise error
    finally:
        del error  # this frame is in its traceback, and whatever goes round in a circle waits long for the collector


class Poller:
    """Stands in front of trio's `io_manager`, and waits for connections as well as for what trio waits for."""

    def __init__(self, runner: Any) -> None:
        self._io = runner.io_manager
        self._runq = runner.runq
        self._registrations: dict[int, _PollerRegistration] = {}
        self._epoll = select.epoll()
        self._trio_fd: int = self._io._epoll.fileno()
        self._epoll.register(self._trio_fd, select.EPOLLIN)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._io, name)

    def close(self) -> None:
        """trio's loop has ended."""
        self._epoll.close()
        self._io.close()

    def watch(self, fd: int, registration: _PollerRegistration) -> None:
        """Call `registration.ready` from now on whenever there is something to read."""
        self._epoll.register(fd, select.EPOLLIN)
        self._registrations[fd] = registration

    def forget(self, fd: int) -> None:
        """Watch it no longer."""
        del self._registrations[fd]
        self._epoll.unregister(fd)

    def get_events(self, timeout: float) -> Any:
        """What trio is to look at; before that, connections have been served. May return nothing, and early."""
        poll, registrations, trio_fd, clock = self._epoll.poll, self._registrations, self._trio_fd, time.monotonic
        now = busy_since = clock()
        ends = now + timeout
        left = timeout
        while True:
            events = poll(left, EVENTS_MAX)
            woken = clock()
            if woken - now > PAUSE_SECONDS:
                busy_since = woken
            has_own = False
            for fd, _flags in events:
                if fd == trio_fd:
                    has_own = True
                elif (registration := registrations.get(fd)) is not None:
                    registration.ready()
            if has_own:
                return self._io.get_events(0)
            now = clock()
            left = ends - now
            if self._runq or left <= 0 or now - busy_since > BUSY_SECONDS:
                break
        return []


def poller_of_loop() -> Poller | None:
    """The poller of the running loop, made where it is the first time; None where it cannot be."""
    if not hasattr(select, "epoll"):
        return None
    try:
        from trio._core._run import GLOBAL_RUN_CONTEXT, SystemClock

        runner: Any = GLOBAL_RUN_CONTEXT.runner
        if isinstance(runner.io_manager, Poller):
            return runner.io_manager
        if type(runner.clock) is not SystemClock or runner.is_guest:
            return None
        poller = Poller(runner)
        runner.io_manager = poller
    except (ImportError, AttributeError) as error:
        logger.warning("this version of trio is unknown, each request takes a turn of its loop cause=%s", error)
        return None
    return poller


def register(poller: Poller | None, sock: socket.socket, serve: Serve) -> Registration:
    """Have `serve` called whenever `sock` has something to read, by the poller where there is one."""
    return _TaskRegistration(sock, serve) if poller is None else _PollerRegistration(poller, sock, serve)
