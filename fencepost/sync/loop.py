"""The thread in which trio runs, one for each Client, and calls into it from the program's threads."""

import contextvars
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from fencepost.client import Client as AsyncClient
from fencepost.client import KafkaError
from fencepost.client.keywords import Duration
from fencepost.client.options import seconds as in_seconds
from fencepost.extras import needed_for

with needed_for("fencepost.sync", "sync"):
    import trio

T = TypeVar("T")
_LOOK_AGAIN_S = 1.0
_END_S = 10.0


class TimedOutError(TimeoutError, trio.TooSlowError):
    """A call took longer than `fail_after` or the client's `timeout` allows. It was cancelled."""


class _Deadline(threading.local):
    at: float | None = None


_deadline = _Deadline()


@contextmanager
def fail_after(seconds: Duration) -> Iterator[None]:
    """Calls of this thread inside the block raise TimedOutError once `seconds` (or a timedelta) have passed.

    Blocks may be nested. Raises ValueError for an invalid duration.
    """
    outer, mine = _deadline.at, time.monotonic() + in_seconds(seconds)
    _deadline.at = mine if outer is None else min(outer, mine)
    try:
        yield
    finally:
        _deadline.at = outer


class _Gate:
    """Opens once. Like an Event, but Ctrl-C cannot interrupt it between two steps and leave it broken."""

    __slots__ = ("_is_open", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._is_open = False

    def set(self) -> None:
        """Open it; a second call does nothing."""
        if not self._is_open:
            self._is_open = True
            self._lock.release()

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds; returns whether it is open."""
        if not self._is_open and self._lock.acquire(timeout=timeout):
            self._lock.release()
        return self._is_open


class _Job:
    """One call in the trio thread."""

    def __init__(
        self,
        function: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        within: float | None,
        context: contextvars.Context,
    ) -> None:
        self.function, self.args, self.within, self.context = function, args, within, context
        self.scope = trio.CancelScope()
        self.over = _Gate()
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False
        self.closing = False

    async def run(self) -> None:
        """In the trio thread: keep the result or the exception, raise nothing."""
        if self.within is not None:
            self.scope.deadline = min(self.scope.deadline, trio.current_time() + self.within)
        try:
            with self.scope:
                self.result = await self.function(*self.args)
                self.finished = True
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            self.error = error


class Loop:
    """A Client and the thread that runs it. `timeout` (seconds) bounds every call but those that wait for records.

    Calls may come from several threads at once. Context variables that a call sets belong to the calling thread, as
    they would belong to a task.
    """

    def __init__(self, client: AsyncClient, timeout: Duration | None) -> None:
        self._client = client
        self._timeout = None if timeout is None else in_seconds(timeout)
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="fencepost", daemon=True)
        self._ready = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop: trio.Event | None = None
        self._idle = trio.Event()
        self._jobs: set[_Job] = set()
        self._over = self._asked_to_end = False
        self._error: BaseException | None = None
        self.local = threading.local()
        """The state of a calling thread: its context, and whether it runs a callback."""
        self.views: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        """The program's views, by the id of their async objects."""

    # -- start and close

    def start(self) -> None:
        """Start the thread; returns when the client is open. Raises the error of opening it."""
        if self._token is not None:
            raise RuntimeError("a Client can be opened only once")
        self._check_process()
        self._thread.start()
        self._ready.wait()
        if self._error is not None and self._token is None:
            raise self._error

    def close(self, *, raising: bool) -> None:
        """End the client and its thread; calls of other threads under way raise KafkaError.

        Raises the exception of the client's background tasks, unless another one is being raised (not `raising`).
        """
        if os.getpid() != self._process:
            if raising:
                self._check_process()
            return
        self._post(self._end)
        while self._thread.is_alive():
            self._thread.join(_LOOK_AGAIN_S)
        error, self._error = self._error, None
        if error is not None and raising:
            raise error

    def _end(self) -> None:
        self._over = self._asked_to_end = True
        if self._stop is not None:
            self._stop.set()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001 - raised in the program's thread by `call` and `close`
            self._error = error
        finally:
            self._over = True
            self._ready.set()

    async def _main(self) -> None:
        self._stop = trio.Event()
        async with self._client:
            self._token = trio.lowlevel.current_trio_token()
            self._ready.set()
            try:
                await self._stop.wait()
            finally:
                self._over = True
                for job in self._jobs:
                    job.closing = True
                    job.scope.cancel()
                with trio.CancelScope(shield=True):
                    while self._jobs:
                        self._idle = trio.Event()
                        await self._idle.wait()

    @property
    def is_running(self) -> bool:
        return self._token is not None and not self._over and os.getpid() == self._process

    # -- calls

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, patient: bool = False) -> T:
        """Run `function(*args)` in the trio thread and wait for it; returns its result or raises its exception.

        `patient` calls wait for records; the client's timeout does not bound them. An exception in the waiting thread,
        above all Ctrl-C, cancels the call and is raised once that has ended.
        """
        self._check_process()
        if threading.get_ident() == self._thread.ident:
            raise RuntimeError("this is the client's own thread: callbacks must not call the client")
        job = _Job(function, args, self._within(patient), self._context())
        launched = False
        try:
            launched = self._post(self._launch, job)
            if launched:
                self._wait(job)
        except BaseException as interrupted:
            if self._token is not None and self._post(self._cancel, job):
                self._wait(job)
            if isinstance(job.error, Exception):
                interrupted.add_note(f"the call that was interrupted ended with {job.error!r}")
            raise
        if not launched:
            raise self._gone()
        if job.error is not None:
            raise job.error
        if job.finished:
            result: T = job.result
            return result
        if job.closing:
            if not self._asked_to_end:  # the client ends on its own: wait for its error
                self._thread.join(_END_S)
            raise self._gone()
        raise TimedOutError("the call took longer than its timeout")

    def _context(self) -> contextvars.Context:
        """The calling thread's context, in which all its calls run one after the other."""
        found: contextvars.Context | None = getattr(self.local, "context", None)
        if found is None:
            found = self.local.context = contextvars.copy_context()
        return found

    def _within(self, patient: bool) -> float | None:
        """The timeout of a call that begins now, in seconds."""
        left = [] if _deadline.at is None else [max(_deadline.at - time.monotonic(), 0.0)]
        if self._timeout is not None and not patient:
            left.append(self._timeout)
        return min(left, default=None)

    def _launch(self, job: _Job) -> None:
        if self._over:
            job.closing = True
            job.over.set()
            return
        self._jobs.add(job)
        trio.lowlevel.spawn_system_task(self._do, job, name=job.function, context=job.context)

    def _cancel(self, job: _Job) -> None:
        """Runs after `_launch` if that was called at all: an interruption may come first."""
        if job in self._jobs:
            job.scope.cancel()
        else:
            job.over.set()

    async def _do(self, job: _Job) -> None:
        try:
            await job.run()
        finally:
            self._jobs.discard(job)
            self._idle.set()
            job.over.set()

    def _wait(self, job: _Job) -> None:
        while not job.over.wait(_LOOK_AGAIN_S):
            if not self._thread.is_alive():
                raise self._gone()

    def _post(self, function: Callable[..., Any], *args: Any) -> bool:
        """Call `function` in the trio thread; False if that thread has ended."""
        if self._token is None:
            if self._thread.ident is None and function != self._end:
                raise RuntimeError("the client is not open: use it with `with`")
            return False
        try:
            self._token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            return False
        return True

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError(
                f"this client belongs to process {self._process}, and this is {os.getpid()}: threads and connections"
                " do not survive a fork. Open a Client of its own in each process"
            )

    def _gone(self) -> Exception:
        if isinstance(self._error, Exception):
            return self._error
        return KafkaError("the client is closed")
