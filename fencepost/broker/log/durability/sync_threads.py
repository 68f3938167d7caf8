"""The threads that wait for the disk, so that the event loop does not: one leads, some help where that pays.

trio's own `to_thread.run_sync` would do; it costs two more turns of the loop and a third more CPU per flush, and in
`fsync` durability every acknowledged write pays that.
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
"""Threads beside the leading one. Flushes of different files overlap: docs/decisions/0011-group-commit.md."""
WORTH_SECONDS = 0.0005
"""So much must be left to wait for before helpers are called: waking one costs a tenth of it."""
_WEIGHT = 0.2

BRIEF_SECONDS = 0.0005
"""A round expected to take no longer is done on the event loop itself: the way to a thread and back costs 0.25 ms of
CPU, more than a good disk takes."""
BRIEF_BYTES = 128 << 10
"""And only with so few bytes to flush, for which the disk's usual pace holds."""
LONG_SECONDS = 0.005
INLINE_FLUSH_BACKOFF_S = 1.0
"""After one on the event loop has taken LONG_SECONDS all the same, threads do it for so long."""

Failure = tuple[int, OSError]
"""Which one of a sequence failed (its number), and how."""
Job = tuple[trio.lowlevel.TrioToken, trio.lowlevel.Task, Callable[[], object]]


class FlushThreads(Protocol):
    """Who waits for the disk; simulations hand in one that takes virtual time."""

    @property
    def is_busy(self) -> bool:
        """Whether anything is being done or waits for it."""

    def is_brief(self, count: int, size_bytes: int) -> bool:
        """Whether `count` files with `size_bytes` to flush are synced so soon that the event loop may wait for it."""

    def sync_here(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        """Sync all of `sync_targets` on the spot and tell which ones failed."""

    async def sync(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        """Sync all of `sync_targets` and tell which ones failed."""

    def close(self) -> None:
        """Nothing more will be asked."""


class SyncThreads:
    """Runs one job at a time in a thread of its own; threads are made when first needed, and ended by `close`."""

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
        self._asked = 0

    @property
    def is_busy(self) -> bool:
        """As the port says."""
        return self._asked > 0

    def is_brief(self, count: int, size_bytes: int) -> bool:
        """As the port says: where the last flushes were quick, these are few and small, and none was long of late."""
        return (
            self._measured
            and size_bytes <= BRIEF_BYTES
            and count * self._usual_seconds <= BRIEF_SECONDS
            and time.perf_counter() >= self._inline_again_at
        )

    def sync_here(self, sync_targets: Sequence[SyncTask]) -> list[Failure]:
        """As the port says; how long it takes decides about the next ones."""
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
        """Sync all of `sync_targets`, several at a time where the disk is slow, and tell which ones failed.

        Every one is tried, whatever becomes of the others. Not cancellable: a flush that has begun cannot be called
        back, and its outcome must be known.
        """
        failures: list[Failure] = await self._run(lambda: self._sync_all(sync_targets))
        return failures

    async def _run(self, job: Callable[[], object]) -> "list[Failure]":
        if self._leading is None:
            self._leading = threading.Thread(target=self._lead, name="fencepost-sync", daemon=True)
            self._leading.start()
        self._jobs.put((trio.lowlevel.current_trio_token(), trio.lowlevel.current_task(), job))
        self._asked += 1
        try:
            result = await trio.lowlevel.wait_task_rescheduled(lambda _raise_cancel: trio.lowlevel.Abort.FAILED)
        finally:
            self._asked -= 1
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

    # In the threads. What one job needs is held by the variables of one call, which are gone when the thread waits for
    # the next job: else the files of a deleted topic stayed open until something else was flushed.

    def _lead(self) -> None:
        while self._do_job():
            pass  # `_do_job` does it all

    def _do_job(self) -> bool:
        """Wait for one job and do it; False when the thread must end."""
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
            pass  # `_do_share` does it all

    def _do_share(self) -> bool:
        """Wait for one call and help with it; False when the thread must end."""
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
        if not called:  # the disk may just have turned out to be slow
            called = self._call(share, len(sync_targets) - 1)
        share.work()
        for _ in range(called):
            share.helpers_done.acquire()
        for result in share.helped:
            result.unwrap()
        return share.failures

    def _note(self, seconds: float) -> None:
        """Take the time of one file into the usual one."""
        self._usual_seconds += (seconds - self._usual_seconds) * (_WEIGHT if self._measured else 1.0)
        self._measured = True

    def _call(self, share: "_Share", left: int) -> int:
        """Have helpers take their share of what is left, where that pays; how many were called."""
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
    """Files to be flushed, which any number of threads take from one after the other."""

    def __init__(self, sync_targets: Sequence[SyncTask]) -> None:
        self.failures: list[Failure] = []
        self.helped: list[outcome.Outcome[None]] = []
        self.helpers_done = threading.Semaphore(0)
        self._waiting = deque(enumerate(sync_targets))

    def work(self) -> None:
        """Flush until nothing is left to take."""
        while self.step():
            pass  # `step` does it all

    def step(self) -> bool:
        """Flush one file; False when all are taken."""
        try:
            number, target = self._waiting.popleft()
        except IndexError:
            return False
        try:
            target.sync()
        except OSError as error:
            self.failures.append((number, error))
        return True
