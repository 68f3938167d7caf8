"""The broker under test: its address, and what its processes cost."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

READY_PREFIX = "fencepost ready on "
STOP_TIMEOUT_SECONDS = 20
CPUCLOCK_SCHED = 2
"""Linux: with the complement of a process id above its three bits it is that process's clock (clock_getcpuclockid)."""


@dataclass
class Target:
    """A broker by name and address; without `pid` its CPU and memory are not known."""

    name: str
    address: str
    pid: int | None = None
    durability: str = "os"
    """What an acknowledgement means: `os`, the page cache has it; `fsync`, the disk has it."""

    def cpu_seconds(self) -> float | None:
        """User and system time of the whole process tree so far; to the nanosecond on Linux."""
        return None if self.pid is None else sum(map(cpu_seconds_of, self._tree()))

    def rss_bytes(self) -> int | None:
        """Resident memory of the whole process tree; on Linux, what its processes share counts once."""
        return None if self.pid is None else sum(map(_memory_of, self._tree()))

    def _tree(self) -> list[psutil.Process]:
        assert self.pid is not None
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]


def _memory_of(process: psutil.Process) -> int:
    found = process.memory_full_info()
    return int(getattr(found, "pss", found.rss))


def cpu_seconds_of(process: psutil.Process) -> float:
    """What the scheduler charged to a process. psutil reads it in ticks, mostly of 10 ms, hence only where it must."""
    if sys.platform != "linux":
        times = process.cpu_times()
        return float(times.user + times.system)
    return time.clock_gettime_ns((~process.pid << 3) | CPUCLOCK_SCHED) / 1e9


class OwnBroker(Target):
    """A `fencepost serve` that the benchmark starts and ends itself."""

    def __init__(self, name: str, directory: Path, durability: str) -> None:
        super().__init__(name, "", None, durability)
        self.arguments: list[str] = []
        """More options of `fencepost serve`."""
        self.facts: dict[str, str] = {}
        """The key=value pairs of the ready line."""
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self._log = (directory / f"{name}.log").open("a")

    def start(self) -> None:
        """Start on a fresh directory and return when the ready line was read."""
        self.start_on(self._directory / f"{self.name}-{time.monotonic_ns()}")

    def stores(self, data: Path) -> list[str]:
        """The options of `fencepost serve` that say where the logs are."""
        return ["--data", str(data)]

    def start_on(self, data: Path) -> None:
        """Start on this directory and return when the ready line was read."""
        command = [sys.executable, "-m", "fencepost", "serve", *self.stores(data), "--listen", "127.0.0.1:0"]
        command += ["--set", f"durability={self.durability}", "--set", "group.initial.rebalance.delay.ms=0"]
        self._process = subprocess.Popen(
            command + self.arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,  # Linux shares the CPU among sessions first: it must not be one of ours
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(READY_PREFIX):
            self.stop()
            raise RuntimeError(f"{self.name} did not start; see {self._log.name}")
        self.address, *facts = line.removeprefix(READY_PREFIX).split()
        self.facts = {name: value for name, _, value in (fact.partition("=") for fact in facts)}
        self.pid = self._process.pid

    def stop(self) -> None:
        """End the process, politely first."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None


class ClusterBroker(OwnBroker):
    """A broker whose logs are in a PostgreSQL database and an object store. Its CPU is without PostgreSQL's."""

    def __init__(self, directory: Path, store: str, objects: str) -> None:
        super().__init__("fencepost (cluster)", directory, "fsync")
        self._options = ["--store", store, "--objects", objects]

    def stores(self, data: Path) -> list[str]:
        return self._options
