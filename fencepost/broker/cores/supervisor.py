"""Starts a broker for each core, starts those again that end, and stops all in order.

    supervisor ----fork----> core 0, core 1, ...
        ^                         |
        +---- a pipe for each ----+    a byte when it is ready, and from then on while it lives

It has no threads and no event loop, so that it may fork at any time. What it has imported, all cores share in memory.
"""

import dataclasses
import logging
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NoReturn

from fencepost.broker.cores.layout import Layout, next_start, nonblocking_pipe

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 10.0
"""How long a core that has ended waits for its next start: doubled each time, until it has lived for the longest."""
LONGEST_PAUSE_OF_READY_SECONDS = 0.8
"""A core that was ready waits no longer: its partitions have no other leader."""
TRIES = 3
"""After this many starts of a core that never was ready, the others are reported as serving without it."""
STOP_LAST_SECONDS = 20.0
"""How long a stop waits for the other cores, before it stops core 0: they may need its answers."""
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger(__name__)

Serve = Callable[[Layout, int, int], int]
"""Runs the broker of a core in its process, and writes bytes to a descriptor. Returns the exit code."""


@dataclass(slots=True)
class _Core:
    number: int
    pid: int = 0
    """0 while it does not run."""
    pipe: int = -1
    """Where it says that it is ready, and lives; -1 while it does not run."""
    is_ready: bool = False
    was_ready: bool = False
    """Whether any of its processes was."""
    failed: int = 0
    """How many of its starts failed before any was ready."""
    began: float = 0.0
    heard_at: float = 0.0
    pause: float = FIRST_PAUSE_SECONDS / 2
    start_at: float = 0.0
    leaves: bool = False
    """Whether its process was asked to stop, because there are to be fewer cores."""


class Supervisor:
    """The processes of all cores."""

    def __init__(
        self,
        layout: Layout,
        serve: Serve,
        notify_ready: Callable[[Collection[int]], None],
        notify_alive: Callable[[], None],
        watchdog_seconds: float,
    ) -> None:
        """`notify_ready` gets the cores that are missing when all others serve, and again when those are fewer.

        A core that is silent for `watchdog_seconds` is killed; 0: none is.
        """
        self.layout = layout
        """Of the next start of a core."""
        self._serve = serve
        self._notify_ready = notify_ready
        self._notify_alive = notify_alive
        self._watchdog_seconds = watchdog_seconds
        self._cores = [_Core(number) for number in range(layout.cores)]
        self._alive = os.pipe()
        """Cores see the end of this pipe when the supervisor has ended, in whatever way."""
        self._wake = nonblocking_pipe()
        self._signals: list[int] = []
        self._stopping = False
        self._last_until = math.inf
        """While the others stop: when core 0 is stopped at the latest."""
        self._missing: set[int] | None = None
        """The cores that were missing when the others served; None until then."""
        self._reported = 0
        """How many cores there were then."""
        self._exit_code = 0

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT, or until core 0 fails before it was ever ready; return the exit
        code when all cores have ended.
        """
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, self._note)
        while not self._stopping or any(core.pid for core in self._cores):
            self._change_number()
            self._start_due()
            self._wait()
            self._report()
            while self._signals:
                self._stop(signal.Signals(self._signals.pop(0)))
            self._reap()
            self._watch()
        return self._exit_code

    def _note(self, number: int, frame: object) -> None:
        if number != signal.SIGCHLD:
            self._signals.append(number)

    def _wait(self) -> None:
        """Until a signal, a byte of a core, or the next moment at which something is due."""
        now = time.monotonic()
        due = [core.start_at for core in self._to_start()]
        if self._watchdog_seconds:
            due.append(now + self._watchdog_seconds / 4)
        due.append(self._last_until)
        timeout = None if min(due) == math.inf else max(0.0, min(due) - now)
        pipes = {core.pipe: core for core in self._cores if core.pipe >= 0}
        for fd in select.select([self._wake[0], *pipes], [], [], timeout)[0]:
            data = os.read(fd, 4096)
            if fd in pipes and data:
                pipes[fd].is_ready = pipes[fd].was_ready = True
                pipes[fd].heard_at = time.monotonic()
            elif fd in pipes:
                os.close(fd)
                pipes[fd].pipe = -1

    def _report(self) -> None:
        """That the cores serve, also without those that cannot start: they are tried again meanwhile."""
        missing = {core.number for core in self._cores if not core.was_ready}
        if self._stopping or (missing, len(self._cores)) == (self._missing, self._reported):
            return
        if all(core.is_ready or (core.number in missing and core.failed >= TRIES) for core in self._cores):
            for number in sorted(missing):
                logger.error("core %d cannot start, the others serve without it; it is tried again", number)
            for number in sorted((self._missing or set()) - missing):
                logger.warning("core %d serves now", number)
            self._missing, self._reported = missing, len(self._cores)
            self._notify_ready(missing)

    # Starts

    def _change_number(self) -> None:
        """Core 0 says how many cores have to run: begin with the new ones, stop those that lead nothing any more."""
        wanted = self.layout.cores
        self._cores += [_Core(number) for number in range(len(self._cores), wanted)]
        for core in self._cores[wanted:]:
            if core.pid and not core.leaves and not self._stopping:
                logger.info("core %d leads nothing any more, it stops", core.number)
                os.kill(core.pid, signal.SIGTERM)
                core.leaves = True
        while len(self._cores) > wanted and not self._cores[-1].pid:
            self._cores.pop()
        self.layout.tell_running(len(self._cores))

    def _start_due(self) -> None:
        for core in self._to_start():
            if time.monotonic() >= core.start_at:
                self._start(core)

    def _to_start(self) -> list[_Core]:
        return [core for core in self._cores[: self.layout.cores] if not core.pid and not self._stopping]

    def _start(self, core: _Core) -> None:
        core.began = core.heard_at = time.monotonic()
        try:
            self.layout = self.layout.grown(core.number + 1)
            start = next_start(self.layout.root, wait=False)
            core.pid, core.pipe = self._fork(
                dataclasses.replace(self.layout, start=start, alive_fd=self._alive[0], supervisor_fd=self._wake[1]),
                core,
            )
        except (OSError, ValueError) as error:  # no space, descriptors or processes left: the other cores go on
            self._put_off(core)
            logger.error("core %d cannot start, the next try is in %.1f s cause=%s", core.number, core.pause, error)
            return
        core.is_ready = False
        logger.info("core %d starts pid=%d", core.number, core.pid)

    def _fork(self, layout: Layout, core: _Core) -> tuple[int, int]:
        """The process of a core, and the pipe on which it says that it lives. Raises OSError."""
        pipe, written = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until the new process has its own handlers
        try:
            pid = os.fork()
            if not pid:
                os.close(pipe)
                self._be(layout, core.number, written)
        except OSError:
            os.close(pipe)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            os.close(written)
        return pid, pipe

    def _be(self, layout: Layout, number: int, written: int) -> NoReturn:
        """The rest of the life of a core's process."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for one in _SIGNALS:
                signal.signal(one, signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            os.close(self._alive[1])
            for other in self._cores:
                if other.pipe >= 0:
                    os.close(other.pipe)
            code = self._serve(layout, number, written)
        except Exception as error:
            logger.critical("the broker failed cause=%r", error, exc_info=error)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    # Ends

    def _reap(self) -> None:
        for core in self._cores:
            pid, status = os.waitpid(core.pid, os.WNOHANG) if core.pid else (0, 0)
            if not pid:
                continue
            core.pid = 0
            if core.pipe >= 0:
                os.close(core.pipe)
                core.pipe = -1
            if self._stopping:
                continue
            if core.leaves:
                self._cores[core.number] = _Core(core.number)
                continue
            code = os.waitstatus_to_exitcode(status)
            if not core.number and code > 0 and not core.was_ready:
                logger.error("core 0 cannot start, so that no core serves exit_code=%d", code)
                self._exit_code = code
                self._stop(signal.SIGTERM)
                continue
            self._put_off(core)
            logger.error(
                "core %d ended, it starts again in %.1f s and the others go on exit_code=%d",
                core.number,
                core.pause,
                code,
            )

    def _put_off(self, core: _Core) -> None:
        """Until the next try, the longer the shorter it lived."""
        now = time.monotonic()
        core.failed += not core.was_ready
        longest = LONGEST_PAUSE_OF_READY_SECONDS if core.is_ready else LONGEST_PAUSE_SECONDS
        lived_long = now - core.began > LONGEST_PAUSE_SECONDS
        core.pause = FIRST_PAUSE_SECONDS if lived_long else min(core.pause * 2, longest)
        core.start_at, core.is_ready = now + core.pause, False

    def _watch(self) -> None:
        """Kill cores whose event loop hangs; while there is none, report that all live."""
        now = time.monotonic()
        if self._stopping and (now >= self._last_until or not any(core.pid for core in self._cores[1:])):
            self._stop_core_0()
        if not self._watchdog_seconds or self._missing is None:
            return
        for core in self._cores:
            if core.pid and core.is_ready and now - core.heard_at > self._watchdog_seconds:
                logger.error("core %d is silent for %.0f s, it is killed", core.number, now - core.heard_at)
                os.kill(core.pid, signal.SIGKILL)
        self._notify_alive()

    def stop(self) -> None:
        """Begin to stop all cores, as SIGTERM does."""
        self._signals.append(signal.SIGTERM)

    def _stop(self, number: signal.Signals) -> None:
        """Stop core 0 last. A second signal goes to all of them at once."""
        logger.info("stopping cores=%d signal=%s", len(self._cores), number.name)
        for core in self._cores:
            if core.pid and (core.number or self._stopping):
                os.kill(core.pid, number)
        if not self._stopping:
            self._stopping = True
            self._last_until = time.monotonic() + STOP_LAST_SECONDS

    def _stop_core_0(self) -> None:
        if self._last_until < math.inf and self._cores[0].pid:
            os.kill(self._cores[0].pid, signal.SIGTERM)
        self._last_until = math.inf
