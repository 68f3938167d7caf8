"""The threads that wait for the disk instead of the event loop: a leading one, and helpers if the disk is slow.

trio's `to_thread.run_sync` would work, but costs two more passes of the loop and a third more CPU for each flush. With
`durability=fsync` every acknowledged write would pay that.
"""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import outcome
import trio

from fencepost.broker.log.storage.store import SyncTask

logger = logging.getLogger(__name__)

HELPERS_MAX = 15
"""Most threads besides the leading one. Flushes of different files overlap: docs/decisions/0011-group-commit.md."""
WORTH_SECONDS = 0.0005
"""Helpers are called only if at least this much waiting is left: to wake one costs a tenth of it."""
_WEIGHT = 0.2

BRIEF_SECONDS = 0.0005
"""A round expected to take no longer runs inline on the event loop: the detour through a thread costs 0.25 ms of CPU,
more than a fast disk needs."""
BRIEF_BYTES = 128 << 10
"""The most bytes of an inline round: for more the disk's usual time does not apply."""
LONG_SECONDS = 0.005
INLINE_FLUSH_BACKOFF_S = 1.0
"""For this time after an inline round that took LONG_SECONDS or more, threads run the rounds."""

Failure = tuple[int, OSError]
"""The index of the failed target, and its error."""
Job = tuple[trio.lowlevel.TrioToken, trio.lowlevel.Task, Callable[[], object]]


class FlushThreads(Protocol):
    """The threads that wait for the disk; simulations replace them by a double in virtual time."""

    @property
    def is_busy(self) -> bool:
        """Whether a job runs or waits."""

    def is_brief(self, count: int, size_bytes: int) -> bool:
        """Whether `count` files with `size_bytes` to flush are synced so fast that the event loop may wait."""

    def sync_inline(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        """Sync all of `sync_targets` inline. Returns the failures."""

    async def sync(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        """Sync all of `sync_targets`. Returns the failures."""

    def close(self) -> None:
        """End the threads; no call may follow."""


class SyncThreads:
    """Runs one job at a time in its own thread; threads start on first use, and `close` ends them."""

    def __init__(self, helpers_max: int = HELPERS_MAX, worth_seconds: float = WORTH_SECONDS) -> None:
        self._helpers_max = helpers_max
        self._worth_seconds = worth_seconds
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._leading: threading.Thread | None = None
        self._calls: queue.SimpleQueue[_Share | None] = queue.SimpleQueue()
        self._helpers: list[threading.Thread] = []
        self._usual_seconds = 0.0
        self._measured = False
        self._inline_again_at = 0.0
        self._jobs_count = 0

    @property
    def is_busy(self) -> bool:
        return self._jobs_count > 0

    def is_brief(self, count: int, size_bytes: int) -> bool:
        """Like the port: true if the last flushes were fast, these are few and small, and none was long recently."""
        return (
            self._measured
            and size_bytes <= BRIEF_BYTES
            and count * self._usual_seconds <= BRIEF_SECONDS
            and time.perf_counter() >= self._inline_again_at
        )

    def sync_inline(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        """Like the port; the measured time decides about the next rounds."""
        began = time.perf_counter()
        share = _Share(sync_targets)
        share.work()
        ended = time.perf_counter()
        if sync_targets:
            self._note((ended - began) / len(sync_targets))
        if ended - began > LONG_SECONDS:
            self._inline_again_at = ended + INLINE_FLUSH_BACKOFF_S
        return share.failures

    async def sync(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        """Sync all of `sync_targets`, several at a time if the disk is slow. Returns the failures.

        Tries every target, even if others fail. Not cancellable: a running flush cannot be stopped, and its result must
        be known.
        """
        failures: list[Failure] = await self._run(lambda: self._sync_all(sync_targets))
        return failures

    async def _run(self, job: Callable[[], object]) -> "list[Failure]":
        if self._leading is None:
            self._leading = threading.Thread(target=self._lead, name="fencepost-sync", daemon=True)
            self._leading.start()
        self._jobs.put((trio.lowlevel.current_trio_token(), trio.lowlevel.current_task(), job))
        self._jobs_count += 1
        try:
            result = await trio.lowlevel.wait_task_rescheduled(lambda _raise_cancel: trio.lowlevel.Abort.FAILED)
        finally:
            self._jobs_count -= 1
        assert isinstance(result, list)
        return result

    def close(self) -> None:
        """End the threads once they are idle."""
        if self._leading is not None:
            self._jobs.put(None)
            self._leading = None
        for _ in self._helpers:
            self._calls.put(None)
        self._helpers.clear()

    # In the threads. Only local variables of one call hold what a job needs, and they are gone when the thread waits
    # for the next job. Otherwise the files of a deleted topic would stay open until the next flush.

    def _lead(self) -> None:
        while self._do_job():
            pass  # `_do_job` does the work

    def _do_job(self) -> bool:
        """Wait for one job and run it. Returns False if the thread must end."""
        order = self._jobs.get()
        if order is None:
            return False
        token, task, job = order
        result = outcome.capture(job)
        try:
            token.run_sync_soon(trio.lowlevel.reschedule, task, result)
        except trio.RunFinishedError:
            logger.debug("the event loop ended before a flush did")
            return False
        return True

    def _help(self) -> None:
        while self._do_share():
            pass  # `_do_share` does the work

    def _do_share(self) -> bool:
        """Wait for one call and help with it. Returns False if the thread must end."""
        share = self._calls.get()
        if share is None:
            return False
        share.helped.append(outcome.capture(share.work))
        share.helpers_done.release()
        return True

    def _sync_all(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        share = _Share(sync_targets)
        called = self._call(share, len(sync_targets) - 1)
        began = time.perf_counter()
        share.step()
        self._note(time.perf_counter() - began)
        if not called:  # the first file may have shown that the disk is slow
            called = self._call(share, len(sync_targets) - 1)
        share.work()
        for _ in range(called):
            share.helpers_done.acquire()
        for result in share.helped:
            result.unwrap()
        return share.failures

    def _note(self, seconds: float) -> None:
        self._usual_seconds += (seconds - self._usual_seconds) * (_WEIGHT if self._measured else 1.0)
        self._measured = True

    def _call(self, share: "_Share", left: int) -> int:
        """Call helpers if enough waiting is left. Returns how many were called."""
        if left * self._usual_seconds < self._worth_seconds:
            return 0
        count = min(left, self._helpers_max)
        while len(self._helpers) < count:
            helper = threading.Thread(target=self._help, name=f"fencepost-sync-{len(self._helpers)}", daemon=True)
            helper.start()
            self._helpers.append(helper)
        for _ in range(count):
            self._calls.put(share)
        return count


class _Share:
    """Files to flush; any number of threads take them one by one."""

    def __init__(self, sync_targets: Sequence[SyncTask]) -> None:
        self.failures: list[Failure] = []
        self.helped: list[outcome.Outcome[None]] = []
        self.helpers_done = threading.Semaphore(0)
        self._waiting = deque(enumerate(sync_targets))

    def work(self) -> None:
        """Flush until nothing is left to take."""
        while self.step():
            pass  # `step` does the work

    def step(self) -> bool:
        """Flush one file. Returns False if all are taken."""
        try:
            number, target = self._waiting.popleft()
        except IndexError:
            return False
        try:
            target.sync()
        except OSError as error:
            self.failures.append((number, error))
        return True
