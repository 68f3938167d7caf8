"""Threads of a simulated process: each is a coroutine, and waits in virtual time.

A real thread runs the call, but only while the event loop stands still, so a seed decides all. Where the call waits
(`pause`, `SimEvent`, `SimLock`), the loop goes on until that virtual time has passed.
"""

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import trio

from tests.kit.determinism import nap

LOCK_SECONDS = 0.001


class Killed(BaseException):
    """The process of this thread was killed."""


class SimProcess:
    """What a `kill` ends: every thread that was started for it."""

    def __init__(self) -> None:
        self.killed = False


process: ContextVar[SimProcess] = ContextVar("process")
"""The process that a task belongs to; its child tasks inherit it."""
_here = threading.local()


class _Thread:
    """One call, and how far it is."""

    def __init__(self, owner: SimProcess, call: Callable[[], Any]) -> None:
        self.owner = owner
        self.result: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._wanted: float | None = None
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def resume(self) -> float | None:
        """Let it run until it waits; return for how many seconds. None: it has ended."""
        self._turn.release()
        self._back.acquire()
        return self._wanted

    def pause(self, seconds: float) -> None:
        """In the thread: wait. Raises Killed."""
        self._wanted = seconds
        self._back.release()
        self._turn.acquire()
        if self.owner.killed:
            raise Killed

    def _run(self) -> None:
        self._turn.acquire()
        _here.thread = self
        try:
            self.result = self._call()
        except BaseException as error:  # noqa: BLE001, it is raised in the task
            self.error = error
        self._wanted = None
        self._back.release()


def in_thread() -> bool:
    """Whether this is a simulated thread, and not the event loop."""
    return getattr(_here, "thread", None) is not None


def pause(seconds: float) -> None:
    """Wait in virtual time; on the event loop, not at all. Raises Killed."""
    if in_thread():
        _here.thread.pause(seconds)


async def run_sync(
    call: Callable[..., Any], *arguments: Any, abandon_on_cancel: bool = False, limiter: object = None
) -> Any:
    """As `trio.to_thread.run_sync`."""
    await trio.lowlevel.checkpoint_if_cancelled()
    thread = _Thread(process.get(), lambda: call(*arguments))
    try:
        while (seconds := thread.resume()) is not None:
            with trio.CancelScope(shield=not abandon_on_cancel and not thread.owner.killed):
                await nap(seconds)
    except trio.Cancelled:
        if thread.owner.killed:
            thread.resume()
        else:
            trio.lowlevel.spawn_system_task(_finish, thread)
        raise
    if isinstance(thread.error, Killed):
        await trio.sleep_forever()  # its task is cancelled
    if thread.error is not None:
        raise thread.error
    await trio.lowlevel.checkpoint()
    return thread.result


async def _finish(thread: _Thread) -> None:
    """A call that was abandoned goes on."""
    while (seconds := thread.resume()) is not None:
        await nap(seconds)


class SimLock:
    """A `threading.Lock` of simulated threads. The event loop never waits for it."""

    def __init__(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        while self._held and in_thread():
            pause(LOCK_SECONDS)
        self._held = True

    def __exit__(self, *error: object) -> None:
        self._held = False


class SimEvent:
    """A `threading.Event` of simulated threads."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float) -> bool:
        """Whether it is set after so many seconds."""
        if not self._set:
            pause(timeout)
        return self._set
