"""The client's background tasks: they run in the program's task group, but only the client's end stops them.

A cancelled program must still abort its transaction, and needs open connections for that. So background tasks are
shielded and end when `close` is called. Their exceptions leave through the task group and cancel the program.
"""

import asyncio
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup


class Background:
    """Starts shielded tasks in one task group, and ends them all together."""

    def __init__(self, nursery: TaskGroup) -> None:
        self._nursery = nursery
        self._scopes: set[anyio.CancelScope] = set()
        self.closed = False
        self.asyncio_loop = _get_running_loop()
        """The asyncio loop that the client was opened in; None under trio."""

    def check_loop(self) -> None:
        """Raise RuntimeError in another event loop or thread than the one that the client was opened in."""
        if _get_running_loop() is not self.asyncio_loop:
            raise RuntimeError(
                "this client was opened in another event loop, thread or process. Open one here, with `from fencepost"
                " import Client`; several threads may share a blocking one, `from fencepost.sync import Client`"
            )

    def start_soon(self, task: Callable[..., Awaitable[Any]], *args: Any) -> anyio.CancelScope:
        """Run `task(*args)`; the returned scope ends it early."""
        scope = anyio.CancelScope(shield=True)
        if self.closed:
            scope.cancel()
        self._scopes.add(scope)
        self._nursery.start_soon(self._run, scope, task, args)
        return scope

    async def _run(self, scope: anyio.CancelScope, task: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        try:
            with scope:
                await task(*args)
        finally:
            self._scopes.discard(scope)

    def close(self) -> None:
        """End every task, also those started later."""
        self.closed = True
        for scope in list(self._scopes):
            scope.cancel()


async def shielded(seconds: float, work: Callable[[], Awaitable[Any]]) -> BaseException | None:
    """Await `work()`, for at most `seconds`, despite any cancellation. Raises what `work` raises.

    Returns a cancellation that came meanwhile, for the caller to raise. It is always None under trio, where a
    cancellation persists until the next wait; asyncio raises it once, even in a shielded scope.
    """

    async def run() -> None:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + seconds):
            await work()

    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        await run()
        return None
    task = asyncio.create_task(run())
    cancelled = await wait_in_spite_of_cancellation(task)
    task.result()
    return cancelled


async def wait_in_spite_of_cancellation(task: "asyncio.Task[None]") -> asyncio.CancelledError | None:
    """Wait until an asyncio task is done. Returns the last cancellation meanwhile, for the caller to raise."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
