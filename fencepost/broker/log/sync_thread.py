"""One thread that waits for the disk, so that the event loop does not: a hand-over of a job and its outcome, no more.

trio's own `to_thread.run_sync` would do; it costs two more turns of the loop and a third more CPU per flush, and in
`fsync` durability every acknowledged write pays that.
"""

import logging
import queue
import threading
from collections.abc import Callable

import outcome
import trio

logger = logging.getLogger(__name__)

Job = tuple[trio.lowlevel.TrioToken, trio.lowlevel.Task, Callable[[], None]]


class SyncThread:
    """Runs one job at a time in a thread of its own; made with the first job, ended by `close`."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, job: Callable[[], None]) -> None:
        """Run `job` in the thread and return when it is done; what it raises is raised here.

        Not cancellable: a flush that has begun can not be called back, and its outcome must be known.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="fencepost-sync", daemon=True)
            self._thread.start()
        self._jobs.put((trio.lowlevel.current_trio_token(), trio.lowlevel.current_task(), job))
        await trio.lowlevel.wait_task_rescheduled(lambda _raise_cancel: trio.lowlevel.Abort.FAILED)

    def close(self) -> None:
        """End the thread once it is idle."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread = None

    def _work(self) -> None:
        while (order := self._jobs.get()) is not None:
            token, task, job = order
            result = outcome.capture(job)
            try:
                token.run_sync_soon(trio.lowlevel.reschedule, task, result)
            except trio.RunFinishedError:
                logger.debug("the event loop ended before a flush did")
                return
