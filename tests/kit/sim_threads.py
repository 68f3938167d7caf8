"""Threads of a simulated process: each is a greenlet, and waits in virtual time.

Its call runs while the event loop stands still, so a seed decides all. Where the call waits (`pause`, `SimEvent`,
`SimLock`), the loop goes on until that virtual time has passed. The clock wakes it, and no task: most calls wait often.
"""

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

import trio
from greenlet import GreenletExit, getcurrent, greenlet

from tests.kit.determinism import call_later, off_the_loop

LOCK_SECONDS = 0.001


class Killed(BaseException):
    """The process of this thread was killed."""


class SimProcess:
    """What a `kill` ends: every thread that was started for it."""

    def __init__(self) -> None:
        self.killed = False
        self.waiting: dict[_Thread, None] = {}
        """Its threads, in the order in which they began to wait."""

    def kill(self) -> None:
        """End all threads, this very moment."""
        self.killed = True
        for thread in list(self.waiting):
            thread.wake()


process: ContextVar[SimProcess] = ContextVar("process")
"""The process that a task belongs to; its child tasks inherit it."""


class _Thread(greenlet):
    """One call, and how far it is."""

    def __init__(self, owner: SimProcess, call: Callable[[], Any]) -> None:
        super().__init__(self._run)
        self.owner = owner
        self.task: trio.lowlevel.Task | None = None
        """It waits for the end of the call."""
        self.result: Any = None
        self.error: BaseException | None = None
        self._call = call
        self.gr_context = copy_context()

    def wake(self) -> None:
        """Let it run until it waits, or ends."""
        if self.dead:
            return  # it was killed before its time came
        self.parent = getcurrent()
        seconds = off_the_loop(self.switch)
        if seconds is not None:
            self.owner.waiting[self] = None
            call_later(seconds, self.wake)
            return
        self.owner.waiting.pop(self, None)
        if self.task is not None:
            trio.lowlevel.reschedule(self.task)

    def abandon(self, allowed: bool, _raise_cancel: object) -> trio.lowlevel.Abort:
        """Its task is cancelled. The call goes on, as that of a true thread does."""
        if not allowed:
            return trio.lowlevel.Abort.FAILED
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def pause(self, seconds: float) -> None:
        """In the thread: wait. Raises Killed."""
        if not self.owner.killed:
            try:
                self.parent.switch(seconds)
            except GreenletExit:  # its world ended by an error, and is forgotten: it must not wait in another one
                self.owner.killed = True
                raise
        if self.owner.killed:
            raise Killed

    def _run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:  # noqa: BLE001, it is raised in the task
            self.error = error


def in_thread() -> bool:
    """Whether this is a simulated thread, and not the event loop."""
    return isinstance(getcurrent(), _Thread)


def pause(seconds: float) -> None:
    """Wait in virtual time; on the event loop, not at all. Raises Killed."""
    here = getcurrent()
    if isinstance(here, _Thread):
        here.pause(seconds)


async def run_sync(
    call: Callable[..., Any], *arguments: Any, abandon_on_cancel: bool = False, limiter: object = None
) -> Any:
    """As `trio.to_thread.run_sync`."""
    await trio.lowlevel.checkpoint_if_cancelled()
    thread = _Thread(process.get(), partial(call, *arguments))
    thread.wake()
    if thread.dead:
        await trio.lowlevel.cancel_shielded_checkpoint()
    else:
        thread.task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(partial(thread.abandon, abandon_on_cancel))
    if isinstance(thread.error, Killed):
        await trio.sleep_forever()  # its task is cancelled
    if thread.error is not None:
        raise thread.error
    return thread.result


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
