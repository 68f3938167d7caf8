"""A real `fencepost serve` process for tests: started on a free port, killed, stopped, paused, started again there."""

import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from types import TracebackType
from typing import Self

from fencepost.testing.reserved_port import reserve_port
from tests.kit.consecutive_ports import reserve_consecutive
from tests.kit.forked_server import POSSIBLE, ForkedServer
from tests.kit.stores import CORES, ON_CLUSTER, new_stores
from tests.kit.waiting import until

READY_TIMEOUT_SECONDS = 100.0
STOP_TIMEOUT_SECONDS = 100.0
FOR_TESTS = {f"FENCEPOST_{name}" for name in ("ENGINE", "INTEROP", "INTEROP_BOOTSTRAP", "LONG", "REQUIRE_JAVA")}
"""Variables that steer the tests: the broker would take them for its settings."""
_API_VERSIONS = bytes.fromhex("0000000a0012000000000001ffff")
_CORE_STARTS = re.compile(r"core (\d+) starts pid=(\d+)")
_READY = re.compile(r"^fencepost ready on (?P<host>\[?[^\s]+?\]?):(?P<port>\d+)(?P<rest>( \w+=\S+)*)$")


class BrokerFailed(Exception):
    """The process ended, or said nothing, before it was ready; the message holds what it wrote to standard error."""


class BrokerProcess:
    """One broker process and its directory.

    `data_dir` None means `--memory`; with FENCEPOST_ENGINE=cluster the logs are in stores of its own (stores.py).
    With `cores` it is a supervisor and a process for each core: `kill` and `pause` mean all of them.
    `settings` become `--set name=value`, `arguments` are put behind them as they are. A restart takes the port of the
    first start, which nobody else gets meanwhile, so that clients find the broker.
    """

    def __init__(
        self,
        work_dir: Path,
        *,
        data_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (),
        cores: int = CORES,
    ) -> None:
        """`launcher` is a command that runs the broker's command, such as one that lowers a limit."""
        self.cores = cores
        self.work_dir = work_dir
        self.data_dir = data_dir
        self.settings = dict(settings or {})
        self.arguments = list(arguments)
        self.environment = dict(environment or {})
        self.launcher = list(launcher)
        self.host = "127.0.0.1"
        self.port = 0
        self.facts: dict[str, str] = {}
        """The key=value pairs of the ready line."""
        self.log_path = work_dir / "broker.log"
        self._process: subprocess.Popen[bytes] | ForkedServer | None = None
        self._shared: list[str] = []

    @property
    def address(self) -> str:
        """HOST:PORT, as a client's bootstrap setting wants it."""
        return f"{self.host}:{self.port}"

    @property
    def listeners(self) -> dict[str, tuple[str, int]]:
        """The host and port of each listener by its name, if the broker has several."""
        named = (one.partition("://")[::2] for one in self.facts["listeners"].split(","))
        return {name: (host, int(port)) for name, (host, _, port) in ((n, a.rpartition(":")) for n, a in named)}

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def command(self) -> list[str]:
        """The command line of the next start."""
        return [*self.launcher, sys.executable, "-m", "fencepost", *self.words()]

    def words(self) -> list[str]:
        """The arguments of the next start."""
        settings = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        return ["serve", *self.stores(), "--listen", f"{self.host}:{self.port}", *settings, *self.arguments]

    def stores(self) -> list[str]:
        """The options that say where the logs are."""
        if ON_CLUSTER:
            self._shared = self._shared or new_stores(self.work_dir)
            return self._shared
        if self.cores > 1:
            return ["--data", str(self.data_dir or self.work_dir / "forgotten"), "--cores", str(self.cores)]
        return ["--memory"] if self.data_dir is None else ["--data", str(self.data_dir)]

    def start(self) -> Self:
        """Start the process and return when its ready line was read; raise BrokerFailed otherwise."""
        assert not self.running, "the broker runs already"
        self._close_output()
        self.work_dir.mkdir(parents=True, exist_ok=True)
        if self.data_dir is None and self.cores > 1:
            shutil.rmtree(self.work_dir / "forgotten", ignore_errors=True)  # as memory would be
        self.port = self.port or (
            reserve_consecutive(self, self.host, self.cores) if self.cores > 1 else reserve_port(self, self.host)
        )
        inherited = {name: value for name, value in os.environ.items() if name not in FOR_TESTS}
        with self.log_path.open("ab") as log:
            if POSSIBLE and not self.launcher and not self.environment:
                self._process = ForkedServer(self.words(), inherited, log.fileno())
            else:
                self._process = subprocess.Popen(
                    self.command(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env={**inherited, "PYTHONUNBUFFERED": "1", **self.environment},
                )
        self._read_ready_line()
        return self

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL)."""
        if self.running and self.cores > 1:
            self.signal(signal.SIGSTOP)  # so that it starts no core meanwhile
            until(lambda: state_of(self.pid) in ("T", "Z", ""))
            cores = self._children()
            for pid in cores:
                _send(pid, signal.SIGKILL)
            self._end(signal.SIGKILL)
            until(lambda: all(map(_is_over, cores)))
        else:
            self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask the process to end (SIGTERM) and return its exit code; kill it when it does not listen."""
        return self._end(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal and do not wait."""
        assert self._process is not None
        self._process.send_signal(number)

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): the fault that makes zombies."""
        self.signal(signal.SIGSTOP)
        for pid in self._children():
            _send(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen process go on."""
        for pid in self._children():
            _send(pid, signal.SIGCONT)
        self.signal(signal.SIGCONT)

    # One core of several

    def core_pid(self, number: int) -> int | None:
        """The process of a core; None while it does not run."""
        pids = {int(core): int(pid) for core, pid in _CORE_STARTS.findall(self.log())}
        pid = pids.get(number)
        return pid if pid in self._children() else None

    def signal_core(self, number: int, signal_number: Signals) -> bool:
        """Send a signal to a core; whether it was running."""
        pid = self.core_pid(number)
        return pid is not None and _send(pid, signal_number)

    def kill_core(self, number: int) -> bool:
        """End one core as a crash would; the supervisor starts it again. Whether it was running."""
        return self.signal_core(number, signal.SIGKILL)

    def core_address(self, number: int) -> tuple[str, int]:
        """Where clients reach a core."""
        return self.host, self.port + number

    def wait_for_core(self, number: int, timeout_seconds: float = 30.0) -> None:
        """Return when a core answers."""

        def answers() -> bool:
            with suppress(OSError), socket.create_connection(self.core_address(number), 1) as one:
                one.sendall(_API_VERSIONS)
                return bool(one.recv(1))
            return False

        until(answers, seconds=timeout_seconds)

    def _children(self) -> list[int]:
        """The processes of the cores."""
        if self.cores <= 1 or not self.running:
            return []
        try:
            return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        except OSError:
            return []

    def restart(self) -> Self:
        """Kill the process if it lives, and start it again on the same directory and port."""
        if self.running:
            self.kill()
        return self.start()

    def wait(self, timeout_seconds: float = STOP_TIMEOUT_SECONDS) -> int:
        """Wait for the process to end by itself and return its exit code."""
        assert self._process is not None
        code = self._process.wait(timeout_seconds)
        self._close_output()
        return code

    def log(self) -> str:
        """Everything the process wrote to standard error, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def rss_bytes(self) -> int:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise BrokerFailed("the process has no resident memory: it ended")

    def connect(self, timeout_seconds: float = 100.0) -> socket.socket:
        """A raw TCP connection to the broker."""
        return socket.create_connection((self.host, self.port), timeout_seconds)

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()

    def _end(self, number: int) -> int:
        process = self._process
        assert process is not None, "the broker was not started"
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_TIMEOUT_SECONDS)
        self._close_output()
        return process.returncode

    def _close_output(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def _read_ready_line(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        line = _read_line(self._process.stdout.fileno(), READY_TIMEOUT_SECONDS)
        found = _READY.match(line)
        if found is None:
            self._end(signal.SIGKILL)
            raise BrokerFailed(f"no ready line but {line!r}; exit code {self._process.returncode}; log:\n{self.log()}")
        self.port = int(found["port"])
        self.facts = dict(pair.split("=", 1) for pair in found["rest"].split())


def state_of(pid: int) -> str:
    """The state of a process as Linux has it, such as `T` for a stopped one; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _is_over(pid: int) -> bool:
    """Whether a killed process has closed its files: one of its threads may still wait for the disk."""
    try:
        return state_of(pid) in ("Z", "") and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return True


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _read_line(descriptor: int, timeout_seconds: float) -> str:
    """One line from a pipe, or what came before its end or the deadline."""
    deadline = time.monotonic() + timeout_seconds
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                break
            chunk = os.read(descriptor, 4096)
            if not chunk:
                break
            line += chunk
    return line.decode(errors="replace").rstrip("\n")
