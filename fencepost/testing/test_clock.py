"""The hand on the clock of a broker under test."""

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
    """The broker's time. It runs with the machine's, ahead of it by all that `advance` has put it forward."""

    def __init__(self, loop: LoopThread, time: JumpingClock, journal: Journal) -> None:
        self._loop = loop
        self._time = time
        self._journal = journal

    def now(self) -> datetime:
        """The wall clock as the broker sees it, in UTC."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def now_ms(self) -> int:
        """The same in ms since 1970."""
        return self._time.now_ms()

    def advance(self, seconds: float | timedelta) -> None:
        """Put it forward; return when the broker has done all that became due.

        Everything in the broker goes by it: timeouts of transactions and of group sessions, expiry of producer ids and
        transactional ids, retention, held-up requests, idle connections. For the broker it is as if nobody had said a
        word for that long, so members of groups that sent no heartbeat lose their place, too. Clients have clocks of
        their own, which this does not touch. Raises ValueError for a step back, which no clock of a broker goes, or
        without an end.
        """
        step = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
        if not 0 <= step < math.inf:
            raise ValueError(f"{step:g} s: the clock only goes forward, and not to the end of time")
        self._journal.note(f"clock put forward by {step:g} s")
        if not self._loop.alive:
            self._time.jump(step)
            return
        rest = self._loop.call(lambda node: self._jump(step, node))
        rest.seen.wait(SETTLE_SECONDS_MAX)  # a client that asks without a pause lets the broker have no rest

    def _jump(self, seconds: float, node: FaultyNode) -> "_Rest":
        rest = _Rest(node.disk_threads, trio.to_thread.current_default_thread_limiter())
        trio.lowlevel.add_instrument(rest)
        self._time.jump(seconds)
        return rest


class _Rest(trio.abc.Instrument):
    """Notices when a loop has nothing left to do but to wait, and no thread is at work for it; once.

    trio.testing.wait_all_tasks_blocked would do, but its module imports pytest, which nobody needs in a script.
    """

    def __init__(self, disk_threads: WatchedThreads, others: trio.CapacityLimiter) -> None:
        self.seen = threading.Event()
        self._disk_threads = disk_threads
        self._others = others

    def before_io_wait(self, timeout: float) -> None:
        """As trio asks: 0 while there are tasks to run or deadlines have passed."""
        if timeout > 0 and not self._disk_threads.waiting and not self._others.borrowed_tokens:
            trio.lowlevel.remove_instrument(self)
            self.seen.set()
