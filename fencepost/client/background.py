"""The client's own tasks: they live in the program's nursery, but only the client's closing ends them.

A cancelled program still has to abort its transaction, and that needs connections that are alive; so background tasks
are shielded and end when `close` is called. What they raise leaves through the nursery and cancels the program.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

T = TypeVar("T")


class Background:
    """Starts shielded tasks in one nursery, and ends them all together."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: set[trio.CancelScope] = set()
        self.closed = False

    def start_soon(self, task: Callable[..., Awaitable[Any]], *args: Any) -> trio.CancelScope:
        """Run `task(*args)`; the returned scope ends it early."""
        scope = trio.CancelScope(shield=True)
        if self.closed:
            scope.cancel()
        self._scopes.add(scope)
        self._nursery.start_soon(self._run, scope, task, args)
        return scope

    async def _run(self, scope: trio.CancelScope, task: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        try:
            with scope:
                await task(*args)
        finally:
            self._scopes.discard(scope)

    def close(self) -> None:
        """End every task, also those that are started later."""
        self.closed = True
        for scope in list(self._scopes):
            scope.cancel()

    async def finish(self, work: Callable[[], Awaitable[T]], grace_s: float) -> T:
        """Run `work` so that a cancelled caller still lets it go on for `grace_s` seconds.

        What `work` returns or raises comes out here. A caller that was cancelled gets `work`'s exception, if there is
        one, and otherwise Cancelled once `work` is over.
        """
        done = trio.Event()
        result: list[T] = []
        failure: list[BaseException] = []

        async def run() -> None:
            try:
                result.append(await work())
            except Exception as error:  # noqa: BLE001 - handed to the caller, who waits for it
                failure.append(error)
            finally:
                done.set()

        scope = self.start_soon(run)
        try:
            await done.wait()
        except trio.Cancelled:
            scope.deadline = min(scope.deadline, trio.current_time() + grace_s)
            with trio.CancelScope(shield=True):
                await done.wait()
            if failure:
                raise failure[0]  # noqa: B904 - the cancellation is its context
            raise
        if failure:
            raise failure[0]
        if not result:
            raise RuntimeError("the client was closed")
        return result[0]
