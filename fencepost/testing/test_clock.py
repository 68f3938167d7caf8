"""The clock of a broker under test, which a test can advance."""

import math
import threading
from datetime import UTC, datetime, timedelta

import trio

from fencepost.testing.faulty_node import FaultyNode, WatchedThreads
from fencepost.testing.journal import Journal
from fencepost.testing.jumping_clock import JumpingClock
from fencepost.testing.loop_thread import LoopThread

SETTLE_SECONDS_MAX = 10.0


class Clock:
    """The broker's time. It runs with the machine's, ahead of it by the sum of all calls of `advance`."""

    def __init__(self, loop: LoopThread, time: JumpingClock, journal: Journal) -> None:
        self._loop = loop
        self._time = time
        self._journal = journal

    def now(self) -> datetime:
        """The broker's wall clock, in UTC."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def now_ms(self) -> int:
        """The same in ms since 1970."""
        return self._time.now_ms()

    def advance(self, seconds: float | timedelta) -> None:
        """Advance it; return when the broker has done everything that became due.

        The whole broker uses this clock: timeouts of transactions and of group sessions, expiry of producer ids and
        transactional ids, retention, delayed requests, idle connections. For the broker it is as if no client had sent
        a request for that time, so the sessions of group members expire, too. Clients have their own clocks, which do
        not change. Raises ValueError for a negative or an infinite step.
        """
        step = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
        if not 0 <= step < math.inf:
            raise ValueError(f"{step:g} s: the clock only goes forward, and not to the end of time")
        self._journal.note(f"clock put forward by {step:g} s")
        if not self._loop.alive:
            self._time.jump(step)
            return
        watcher = self._loop.call(lambda node: self._jump(step, node))
        watcher.seen.wait(SETTLE_SECONDS_MAX)  # a client that sends requests without a pause keeps the broker busy

    def _jump(self, seconds: float, node: FaultyNode) -> "_IdleWatcher":
        watcher = _IdleWatcher(node.disk_threads, trio.to_thread.current_default_thread_limiter())
        trio.lowlevel.add_instrument(watcher)
        self._time.jump(seconds)
        return watcher


class _IdleWatcher(trio.abc.Instrument):
    """Notices, once, when all tasks of a loop wait and no thread works for it.

    trio.testing.wait_all_tasks_blocked does the same, but its module imports pytest, which a script does not need.
    """

    def __init__(self, disk_threads: WatchedThreads, others: trio.CapacityLimiter) -> None:
        self.seen = threading.Event()
        self._disk_threads = disk_threads
        self._others = others

    def before_io_wait(self, timeout: float) -> None:
        """Called by trio; `timeout` is 0 while there are tasks to run or deadlines have passed."""
        if timeout > 0 and not self._disk_threads.waiting and not self._others.borrowed_tokens:
            trio.lowlevel.remove_instrument(self)
            self.seen.set()
