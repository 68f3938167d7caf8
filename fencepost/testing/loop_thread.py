"""The thread of a broker under test: it runs the trio loop, again after each restart, and calls from other threads."""

import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeout
from typing import Any, TypeVar

import trio

from fencepost.testing.faulty_node import FaultyNode
from fencepost.testing.journal import Journal
from fencepost.testing.jumping_clock import JumpingClock

T = TypeVar("T")

START_SECONDS_MAX = 60.0
CALL_SECONDS_MAX = 30.0
END_SECONDS_MAX = 30.0


class BrokerGoneError(Exception):
    """The broker does not run: it was killed or stopped, or it died; the cause of this exception is the reason."""


class _Restarting(Exception):
    """The broker crashed during the call and is started again: the call is repeated."""


class LoopThread:
    """Runs the node that `make` returns, in a loop with `clock`; again each time a fault requests a restart.

    All public methods are for other threads, also for those that run an event loop: they block, but they never wait for
    another task of that loop.
    """

    def __init__(self, make: Callable[[], FaultyNode], clock: JumpingClock, journal: Journal) -> None:
        self._make = make
        self._clock = clock
        self._journal = journal
        self.beside: Callable[[FaultyNode, trio.Nursery], Awaitable[None]] | None = None
        """What runs beside each node: it is called when the node accepts connections, and its tasks end with it."""
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._ending = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._node: FaultyNode | None = None
        self._calls: set[Future[Any]] = set()
        self._failure: BaseException | None = None
        self._reported = True
        self._restarting = False
        """Whether the broker is crashing and will be started again."""

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Return when the broker accepts connections. Raises the error that prevented it."""
        assert not self.alive, "it runs"
        self.check()
        self._ending, self._failure = False, None
        self._ready.clear()
        self._thread = threading.Thread(target=self._run, name="fencepost-broker", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_SECONDS_MAX):
            self.kill()
            raise BrokerGoneError(f"the broker did not start within {START_SECONDS_MAX:g} s")
        self._raise_failure()

    def kill(self) -> None:
        """End it at once: no work is finished, and no file is written for a faster start."""
        self._end(lambda: self._scope.cancel())

    def stop(self) -> None:
        """End it in order. Raises the error that it failed with, if any."""
        if self.alive:
            self._ready.wait(START_SECONDS_MAX)
        self._end(lambda: self._node.stop() if self._node is not None else None)
        self._raise_failure()

    def check(self) -> None:
        """Raise BrokerGoneError if it died of an error that no call has raised yet."""
        if not self._reported:
            raise self._gone()

    def _raise_failure(self) -> None:
        self._reported = True
        if self._failure is not None:
            raise self._failure

    def _end(self, how: Callable[[], None]) -> None:
        self._ending = True
        thread = self._thread
        if thread is None:
            return
        while thread.is_alive():
            if self._token is None:
                self._ready.wait(END_SECONDS_MAX)
            token = self._token
            try:
                if token is not None:
                    token.run_sync_soon(how)
            except trio.RunFinishedError:
                pass  # the loop has ended meanwhile
            thread.join(END_SECONDS_MAX if token is not None else 0.01)
            if token is not None and thread.is_alive():
                raise BrokerGoneError(f"the broker did not end within {END_SECONDS_MAX:g} s")

    def _join(self, seconds: float = END_SECONDS_MAX) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    # Calls

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call `function(node, *args)` in the broker's thread. Raises its errors, and BrokerGoneError."""

        def run(node: FaultyNode, future: Future[T]) -> None:
            try:
                future.set_result(function(node, *args))
            except Exception as error:  # noqa: BLE001 - raised in the calling thread
                future.set_exception(error)

        return self._submit(run)

    def call_async(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """As `call`, for a coroutine function."""

        async def work(node: FaultyNode, future: Future[T]) -> None:
            try:
                future.set_result(await function(node, *args))
            except Exception as error:  # noqa: BLE001 - raised in the calling thread
                future.set_exception(error)

        def run(node: FaultyNode, future: Future[T]) -> None:
            assert self._nursery is not None
            self._nursery.start_soon(work, node, future)

        return self._submit(run)

    def _submit(self, run: Callable[[FaultyNode, "Future[T]"], None]) -> T:
        while self.alive and self._ready.wait(START_SECONDS_MAX):
            if (token := self._token) is None:
                self._join(0.01)  # raise only when the dying broker is dead, unless it is started again
                continue
            future: Future[T] = Future()
            self._calls.add(future)
            try:
                token.run_sync_soon(self._enter, run, future)
                return future.result(CALL_SECONDS_MAX)
            except (_Restarting, trio.RunFinishedError):
                continue
            except BrokerGoneError:
                self._join()  # raise only when the dying broker is dead
                raise
            except WaitTimeout:
                raise BrokerGoneError(f"the broker did not answer within {CALL_SECONDS_MAX:g} s") from None
            finally:
                self._calls.discard(future)
        raise self._gone()

    def _enter(self, run: Callable[[FaultyNode, "Future[T]"], None], future: "Future[T]") -> None:
        node = self._node
        if node is None or self._scope.cancel_called or node.crash_wanted.is_set():
            self._refuse([future])
        else:
            run(node, future)

    def _refuse(self, futures: Iterable["Future[Any]"]) -> None:
        for future in futures:
            if not future.done():
                future.set_exception(_Restarting() if self._restarting else self._gone())

    def _gone(self) -> BrokerGoneError:
        if self._failure is None:
            return BrokerGoneError("the broker does not run: call start() or restart()")
        self._reported = True
        gone = BrokerGoneError(f"the broker died: {self._failure!r}")
        gone.__cause__ = self._failure
        return gone

    # Inside

    def _run(self) -> None:
        ident = threading.get_ident()
        self._journal.thread_ids.add(ident)
        try:
            while trio.run(self._live, clock=self._clock) and not self._ending:
                self._journal.note("restarting after the crash that a test ordered")
        except BaseException as error:  # noqa: BLE001 - the next call to the broker raises it
            self._failure, self._reported = _only(error), False
            self._journal.note(f"died of {error!r}")
        finally:
            self._journal.thread_ids.discard(ident)
            self._node = self._nursery = self._token = None
            self._restarting = False
            self._ready.set()
            self._refuse(list(self._calls))

    async def _live(self) -> bool:
        """Run the broker once; return whether to start it again."""
        self._scope, self._restarting = trio.CancelScope(), False
        self._token = trio.lowlevel.current_trio_token()
        node = self._make()
        with self._scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(node.run)
                if self.beside is not None:
                    await self.beside(node, nursery)
                self._node, self._nursery = node, nursery
                self._journal.note(f"ready on {node.endpoint}")
                self._ready.set()
                nursery.start_soon(self._crash_on_demand, node)
                await node.stopped.wait()
                nursery.cancel_scope.cancel()
        self._node = self._nursery = self._token = None
        self._journal.note("stopped in order" if node.stopped.is_set() else "killed")
        self._refuse(list(self._calls))
        return self._restarting

    async def _crash_on_demand(self, node: FaultyNode) -> None:
        await node.crash_wanted.wait()
        if node.restart_wanted:
            self._restarting = True
            self._ready.clear()
        self._scope.cancel()


def _only(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
