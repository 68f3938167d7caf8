"""A task group in its own task: under asyncio, another task may leave its block than the one that entered it.

Fixtures of pytest-asyncio and start-up hooks do so. anyio's own group must be left by the task that entered it.
"""

import asyncio
from types import TracebackType

import anyio
from anyio.abc import TaskGroup

from fencepost.client.background import wait_in_spite_of_cancellation


class OwnTask:
    """`async with OwnTask() as group`. A failure in it cancels the task that entered, and the block raises it."""

    def __init__(self) -> None:
        self._leave = asyncio.Event()
        self._owner = asyncio.current_task()
        self._task: asyncio.Task[None] | None = None
        self._has_cancelled = False

    async def __aenter__(self) -> TaskGroup:
        entered: asyncio.Future[TaskGroup] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(entered))
        try:
            return await asyncio.shield(entered)
        except BaseException:
            self._leave.set()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all tasks of the group. Raises what they raised, or else the cancellation that came meanwhile."""
        assert self._task is not None
        self._leave.set()
        cancelled = await wait_in_spite_of_cancellation(self._task)
        if self._has_cancelled and self._owner is not None:
            self._owner.uncancel()
        self._task.result()
        if cancelled is not None:
            raise cancelled

    async def _run(self, entered: "asyncio.Future[TaskGroup]") -> None:
        try:
            async with anyio.create_task_group() as group:
                entered.set_result(group)
                while not self._leave.is_set():
                    try:
                        await self._leave.wait()
                    except asyncio.CancelledError:
                        if group.cancel_scope.cancel_called or self._owner is None or self._owner.done():
                            raise
                        # The loop ends and cancels the owner too, which leaves soon and needs the group until then.
        except BaseException:
            if not self._leave.is_set() and self._owner is not None:
                self._has_cancelled = self._owner.cancel()
            raise
