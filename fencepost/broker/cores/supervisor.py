"""Starts a broker for each core, starts those again that end, and stops all in order.

    supervisor ----fork----> core 0, core 1, ...      each tells by a pipe that it is ready
        ^                         |
        +------- SIGCHLD ---------+

It has no threads and no event loop, so that it may fork at any time: what it has imported, all cores share in memory.
"""

import dataclasses
import logging
import mmap
import os
import secrets
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.cores.layout import STARTS, Layout, configs_of, read_start
from fencepost.broker.metadata.identity import check_format, cluster_id_of

SECRET_BYTES = 32
BACKLOG = 128
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 10.0
"""How long a core that has ended waits for its next start: doubled each time, until it has lived for the longest."""
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Core:
    number: int
    pid: int = 0
    """0 while it does not run."""
    ready_fd: int = -1
    is_ready: bool = False
    began: float = 0.0
    pause: float = FIRST_PAUSE_SECONDS
    start_at: float = 0.0


class Supervisor:
    """The processes of all cores. `run` returns the exit code, when all have ended."""

    def __init__(self, layout: Layout, serve: Callable[[Layout, int, int], int], ready: Callable[[], None]) -> None:
        """`serve` runs the broker of a core in a child, and writes to the descriptor when it is ready."""
        self._layout = layout
        self._cores = [_Core(number) for number in range(len(layout.configs))]
        self._serve = serve
        self._ready = ready
        self._alive_read, self._alive_write = os.pipe2(os.O_CLOEXEC)
        """Cores see the end of this pipe when the supervisor has ended, however that was."""
        self._stopping = False
        self._announced = False

    def run(self) -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        while any(core.pid for core in self._cores) or not self._stopping:
            self._start_due()
            self._step()
        return 0

    def _start_due(self) -> None:
        now = time.monotonic()
        for core in self._cores:
            if not core.pid and not self._stopping and now >= core.start_at:
                self._start(core)

    def _start(self, core: _Core) -> None:
        start = next_start(self._layout.root)
        layout = dataclasses.replace(self._layout, start=start, alive_fd=self._alive_read)
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if not pid:
            self._be(layout, core.number, ready_write)
        os.close(ready_write)
        core.pid, core.ready_fd, core.is_ready, core.began = pid, ready_read, False, time.monotonic()
        logger.info("core %d starts pid=%d", core.number, pid)

    def _be(self, layout: Layout, number: int, ready_fd: int) -> NoReturn:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(self._alive_write)
        for other in self._cores:
            if other.ready_fd >= 0:
                os.close(other.ready_fd)
        code = 1
        try:
            code = self._serve(layout, number, ready_fd)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _step(self) -> None:
        """Wait for a signal, a core that is ready, or the next start."""
        now = time.monotonic()
        due = [core.start_at - now for core in self._cores if not core.pid and not self._stopping]
        waiting = {core.ready_fd: core for core in self._cores if core.ready_fd >= 0}
        if waiting:
            for fd in select.select(list(waiting), [], [], 0.02)[0]:
                core = waiting[fd]
                core.is_ready = bool(os.read(fd, 1))
                os.close(fd)
                core.ready_fd = -1
            self._announce()
        found = signal.sigtimedwait(_SIGNALS, 0 if waiting else max(0.0, min([*due, 60.0])))
        if found is None:
            return
        if found.si_signo == signal.SIGCHLD:
            self._reap()
        else:
            self._stop(signal.Signals(found.si_signo))

    def _announce(self) -> None:
        if not self._announced and all(core.is_ready for core in self._cores):
            self._announced = True
            self._ready()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            core = next(one for one in self._cores if one.pid == pid)
            core.pid, core.is_ready = 0, False
            if self._stopping:
                continue
            lived = time.monotonic() - core.began
            core.pause = FIRST_PAUSE_SECONDS if lived > LONGEST_PAUSE_SECONDS else core.pause * 2
            core.start_at = time.monotonic() + min(core.pause, LONGEST_PAUSE_SECONDS)
            logger.error("core %d ended, it starts again status=%d", core.number, os.waitstatus_to_exitcode(status))

    def _stop(self, number: signal.Signals) -> None:
        """All but the first core stop first: they need its answers."""
        self._stopping = True
        for core in self._cores:
            if core.pid:
                os.kill(core.pid, number)


def prepared(config: BrokerConfig, cores: int) -> Layout:
    """The layout of the cores, whose directories are made. Raises WrongDirectory and OSError."""
    directory = config.data_directory
    assert directory is not None, "cores have files"
    directory.mkdir(parents=True, exist_ok=True)
    check_format(directory)
    cluster_id = cluster_id_of(directory, config.node_id, config.cluster_id)
    configs = configs_of(config, cores, cluster_id)
    for one in configs:
        assert one.data_directory is not None
        one.data_directory.mkdir(parents=True, exist_ok=True)
    sockets = Path(tempfile.mkdtemp(prefix="fencepost-"))  # a path has at most 107 bytes: not in the data directory
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    return Layout(configs, secrets.token_bytes(SECRET_BYTES), _listening(sockets, cores), shared)


def next_start(root: Path) -> int:
    """The number of the next start of a core: durable before the core starts, so that none has it again."""
    path = root / STARTS
    number = read_start(root) + 1
    with path.with_suffix(".tmp").open("w") as file:
        file.write(f"{number}\n")
        file.flush()
        os.fsync(file.fileno())
    path.with_suffix(".tmp").replace(path)
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return number


def _listening(directory: Path, count: int) -> tuple[socket.socket, ...]:
    found = []
    for number in range(count):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.bind(str(directory / str(number)))
        one.listen(BACKLOG)
        one.setblocking(False)
        found.append(one)
    return tuple(found)
