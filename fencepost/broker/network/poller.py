"""Waiting for clients' bytes: on Linux without trio's loop between a request and its response.

One pass of trio's loop wakes a task that waits in `trio.lowlevel.wait_readable`. That pass makes some forty function
calls. With cold CPU caches they take three times as long as receiving and sending. Plain functions answer most
requests, so they need no task. Where trio waits for the system, the `Poller` also waits for the connections, and has
them serve their input there. A request that must wait for something wakes its connection's task
(docs/decisions/0024-requests-without-the-loop.md).

trio has no public interface for this, so `Poller` replaces its `io_manager`. The change is small: `get_events` may
return early without events, and otherwise does the same. If trio or the system is not as expected, or the clock is not
the system's (as in a simulation), every connection's task waits through trio's public functions.
"""

import inspect
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
"""What a connection's task has to do. Returns True if the connection stays open."""

EVENTS_MAX = 32
"""How many connections are served before their responses are sent."""
BUSY_SECONDS = 0.005
"""How long the poller serves requests without a pause before trio's own events are checked again."""
PAUSE_SECONDS = 0.0001
"""A poller that waited longer than this for requests was not busy."""


class Served(Protocol):
    """A connection. Plain functions serve it; what they return is work for its task."""

    def serve_input(self) -> Work | None:
        """The socket is readable: receive, handle the requests, and queue their responses."""

    def send_responses(self) -> Work | None:
        """Send the queued responses. Called after `serve_input`, if that left no work.

        The poller first serves every connection that is readable, then sends. So one flush of the disk covers all that
        they appended, and a client that reads several of these connections wakes once.
        """


class Registration(Protocol):
    """One connection's registration, while its socket is watched."""

    async def wait(self) -> Work:
        """Serve input until something needs the task. Cancellation loses nothing."""

    def pause_reading(self) -> None:
        """Serve nothing until `resume_reading`, not even in `wait`: another request must be answered first."""

    def resume_reading(self, work: Work | None) -> None:
        """Serve again, or have the task do `work` first. Another task than the connection's must call this."""

    def close(self) -> None:
        """Stop watching the socket, before it is closed."""


class _TaskRegistration:
    """The connection's own task waits and serves."""

    def __init__(self, sock: socket.socket, served: Served) -> None:
        self._sock = sock
        self._served = served
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
                work = self._served.serve_input()
                if work is None:
                    work = self._served.send_responses()
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
            discard(self._work)


class _PollerRegistration:
    """The connection's task sleeps while the poller serves."""

    __slots__ = ("_fd", "_paused", "_poller", "_served", "_task", "_watched")

    def __init__(self, poller: "Poller", sock: socket.socket, served: Served) -> None:
        self._poller = poller
        self._fd = sock.fileno()
        self._served = served
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

    def serve_input(self) -> bool:
        """The socket is readable, or the client closed the connection. Returns True if `send_responses` must follow."""
        if self._task is None or self._paused:  # busy with an earlier request: the task watches again after that
            self.close()
            return False
        return self._call(self._served.serve_input)

    def send_responses(self) -> None:
        """Send what `serve_input` queued, unless another connection's request woke the task meanwhile."""
        if self._task is not None:
            self._call(self._served.send_responses)

    def _call(self, function: Callable[[], Work | None]) -> bool:
        """Call `function`, and wake the task for its work or its error. Returns True if the task sleeps on."""
        try:
            work = function()
        except Exception as error:  # noqa: BLE001 - the task raises it
            work = failed(error)
        if work is None:
            return True
        self._wake(work)
        return False

    def _wake(self, work: Work) -> None:
        """Have the task do `work`, unless it has been cancelled."""
        if self._task is None:
            discard(work)
        else:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task, outcome.Value(work))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self, work: Work | None) -> None:
        self._paused = False
        if work is None:
            self._watch()
        else:
            self._wake(work)

    def _watch(self) -> None:
        if not self._watched:
            self._watched = True
            self._poller.watch(self._fd, self)

    def close(self) -> None:
        if self._watched:
            self._watched = False
            self._poller.forget(self._fd)


def discard(work: Coroutine[Any, Any, Any]) -> None:
    """Close work that has not begun, and the coroutines it was given: Python warns of each that was never awaited."""
    for given in inspect.getcoroutinelocals(work).values():
        if inspect.iscoroutine(given):
            discard(given)
    work.close()


async def failed(error: Exception) -> bool:
    """Work that raises `error` in the connection's task, which handles it."""
    try:
        raise error
    finally:
        del error  # its traceback refers to this frame: such a cycle would wait long for the garbage collector


class Poller:
    """Wraps trio's `io_manager`, and waits for the connections as well as for trio's own events."""

    def __init__(self, runner: Any) -> None:
        self._io = runner.io_manager
        self._runq = runner.runq
        self.process_events, self.force_wakeup = self._io.process_events, self._io.force_wakeup
        self._registrations: dict[int, _PollerRegistration] = {}
        self._epoll = select.epoll()
        self._trio_fd: int = self._io._epoll.fileno()
        self._epoll.register(self._trio_fd, select.EPOLLIN)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._io, name)

    def close(self) -> None:
        """Close the epoll instances at the end of trio's loop."""
        self._epoll.close()
        self._io.close()

    def watch(self, fd: int, registration: _PollerRegistration) -> None:
        self._epoll.register(fd, select.EPOLLIN)
        self._registrations[fd] = registration

    def forget(self, fd: int) -> None:
        del self._registrations[fd]
        self._epoll.unregister(fd)

    def get_events(self, timeout: float) -> Any:
        """Serve connections, then return trio's events. May return early, without events."""
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
            answered = []
            for fd, _flags in events:
                if fd == trio_fd:
                    has_own = True
                elif (registration := registrations.get(fd)) is not None and registration.serve_input():
                    answered.append(registration)
                    if clock() - woken > BUSY_SECONDS:
                        break  # epoll reports the other connections again, before those that were served
            for registration in answered:
                registration.send_responses()
            if has_own:
                return self._io.get_events(0)
            now = clock()
            left = ends - now
            if self._runq or left <= 0 or now - busy_since > BUSY_SECONDS:
                break
        return []


def poller_of_loop() -> Poller | None:
    """The poller of the running loop, created on the first call; None if the loop does not allow one."""
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
        logger.warning("unsupported version of trio: each request takes a pass of its loop cause=%s", error)
        return None
    return poller


def register(poller: Poller | None, sock: socket.socket, served: Served) -> Registration:
    """Have `served` called whenever `sock` is readable, by the poller if there is one."""
    return _TaskRegistration(sock, served) if poller is None else _PollerRegistration(poller, sock, served)
