"""A Spark driver as a process of its own, with all that it starts: the JVM, and the Python processes of the JVM."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.spark.conftest import ROOT
from tests.spark.killed import SLOW_WORKER

START_SECONDS = 900.0


class Driver:
    """One driver process and everything it starts."""

    def __init__(self, module: str, plan: str, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        self._output = log.open("ab")
        self._began = self._output.tell()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, plan],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), **(environment or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._output):
            assert stream is not None
            stream.close()

    def wait(self, seconds: float = START_SECONDS) -> int:
        """Its exit code, negative after a signal."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def had_no_worker(self) -> bool:
        """Whether it failed because a busy machine did not bring up a Python worker in the time that Spark waits."""
        return no_worker(self.printed())

    def printed(self) -> str:
        """What it wrote to standard error."""
        return self._log.read_bytes()[self._began :].decode(errors="replace")

    def started(self) -> bool:
        """Wait until its query runs; False where it ended before."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_SECONDS)
        return bool(ready) and self._process.stdout.readline() == b"started\n"

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes that still live; Spark's workers are in groups of their own."""
        below = [] if self.ended else descendants(self._process.pid)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        send(below, number)

    def kill(self) -> None:
        """Driver, JVM and workers at once."""
        self.signal(signal.SIGKILL)
        self._process.wait(START_SECONDS)

    def kill_workers(self) -> int:
        """The Python processes of its JVM only; returns how many there were."""
        below = [pid for pid in descendants(self._process.pid) if _command(pid).startswith("python")]
        send(below, signal.SIGKILL)
        return len(below)


def no_worker(failure: str) -> bool:
    """Whether the text of an error says that Spark did not wait for a Python worker."""
    return any(text in failure for text in SLOW_WORKER)


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to those that still live."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def descendants(root: int) -> list[int]:
    """The children of a process, their children, and so on. It needs /proc."""
    parents = {int(path.name): _parent(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    found = [root]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""
