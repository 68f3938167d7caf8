"""One seed, one run: trio with virtual time and a run queue whose order comes from the seed.

The private names of trio are used here and nowhere else; tests/simulation/test_whole_world.py notices when a new trio
has other ones. String hashes order sets, so a run is repeated exactly only under the same PYTHONHASHSEED.
"""

import functools
import heapq
import itertools
import math
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

import trio
import trio.testing
from trio._core import _run as scheduler

T = TypeVar("T")


class Endless(AssertionError):
    """A run did not end."""


class _TimeIsUp(BaseException):
    """Nothing that runs catches it."""


@contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    """Raise Endless if the block takes more of the CPU's time, also in a loop that lets nothing else run.

    For the main thread. Virtual time stands still in such a loop, so no deadline of the run itself could end it. Real
    time would blame a world for a machine that has other work.
    """
    fired = False

    def fire(*_: object) -> None:
        nonlocal fired
        fired = True
        raise _TimeIsUp

    before = signal.signal(signal.SIGPROF, fire)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except BaseException as error:
        if fired:
            raise Endless(f"it did not end within {seconds:g} s") from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run_seeded(seed: int, main: Callable[[], Awaitable[T]]) -> T:
    """Run `main` to its end. Time jumps to the next deadline as soon as every task waits.

    trio shuffles the tasks that are ready; here they are put in the order of their birth first, and the shuffle is the
    seed's. Threads and sockets of the outer world would bring their own order in: `main` must have none. Loops in other
    threads of the process, which have nothing to do with it, do not disturb it.
    """
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r
    _schedule(True, _OfThisThread(Random(seed), before[1]))
    try:
        return trio.run(main, clock=jumping_clock())
    finally:
        _schedule(*before)


def jumping_clock() -> trio.testing.MockClock:
    """Virtual time that jumps and wakes whom it wakes in one pass of the loop.

    trio's own jumps in one pass and wakes in the next, and polls the sockets once more for each jump.
    """
    clock = trio.testing.MockClock(autojump_threshold=0)
    naps: list[_Nap] = []

    def jump() -> None:
        runner = scheduler.GLOBAL_RUN_CONTEXT.runner
        while not runner.runq:
            until = runner.deadlines.next_deadline()
            if naps and naps[0][0] < until:
                until = naps[0][0]
            if until == math.inf:
                return
            if until > clock._virtual_base:
                clock.jump(until - clock._virtual_base)
            now = clock._virtual_base
            runner.deadlines.expire(now)
            while naps and naps[0][0] <= now:
                wake = heapq.heappop(naps)[2]
                if wake is not None:
                    wake()

    clock.__dict__.update(_autojump=jump, current_time=lambda: clock._virtual_base, naps=naps)
    return clock


_sleep = trio.sleep
"""trio's own, in whose place a world may put `nap`."""
_Nap = list[Any]
"""When it ends, its number, and what is called then; None for one that was cancelled."""


async def nap(seconds: float) -> None:
    """As `trio.sleep`; for a quarter of its cost where a `jumping_clock` runs, and half of a simulation is sleep."""
    clock = scheduler.GLOBAL_RUN_CONTEXT.runner.clock
    naps: list[_Nap] | None = getattr(clock, "naps", None)
    if naps is None or seconds <= 0:
        await _sleep(seconds)
        return
    wake = functools.partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())
    entry: _Nap = [clock.current_time() + seconds, next(_numbers), wake]
    heapq.heappush(naps, entry)

    def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
        entry[2] = None
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)


def call_later(seconds: float, call: Callable[[], object]) -> None:
    """Call it outside of any task, when the `jumping_clock` has gone on so far."""
    clock = scheduler.GLOBAL_RUN_CONTEXT.runner.clock
    heapq.heappush(clock.naps, [clock.current_time() + max(0.0, seconds), next(_numbers), call])


def off_the_loop(call: Callable[[], T]) -> T:
    """Call what is to be another thread: it sees no loop, so what only the loop may do fails there."""
    here = scheduler.GLOBAL_RUN_CONTEXT.__dict__
    held = dict(here)
    here.clear()
    try:
        return call()
    finally:
        here.update(held)


_numbers = itertools.count()


class _OfThisThread:
    """Chance for this thread, and other chance for all others: trio has one source for the loops of a process, and a
    shuffle in the loop of a client's thread would take from a seed's numbers."""

    def __init__(self, here: Random, elsewhere: Any) -> None:
        self._thread = threading.get_ident()
        self._here = here
        self._elsewhere = elsewhere

    def __getattr__(self, name: str) -> Any:
        return getattr(self._here if threading.get_ident() == self._thread else self._elsewhere, name)


def _schedule(deterministic: bool, random: Any) -> None:
    scheduler.__dict__["_ALLOW_DETERMINISTIC_SCHEDULING"] = deterministic
    scheduler.__dict__["_r"] = random
