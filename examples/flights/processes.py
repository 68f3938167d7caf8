"""The processes of the demo: the broker and its children, started, killed with -9, started again, and always ended."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import trio

from examples.flights import events

ROOT = Path(__file__).resolve().parents[2]
READY = re.compile(r"^fencepost ready on (?P<host>\S+):(?P<port>\d+)")
READY_TIMEOUT_SECONDS = 60
STOP_TIMEOUT_SECONDS = 20
LINE_BYTES_MAX = 1 << 20
NoteKill = Callable[[str], None]
"""Takes what was killed, for the chart and the verdict."""
Tell = Callable[[str], None]
"""Takes a line for the spectator."""
Listener = Callable[[dict[str, Any]], None]


class ProcessFailed(Exception):
    """A process ended that should not have; the message holds the end of its log."""


class Process:
    """One Python module as a process of its own, with its log, in a session of its own."""

    def __init__(self, name: str, module: str, arguments: Sequence[str], directory: Path) -> None:
        self.name = name
        self.log_path = directory / "logs" / f"{name}.log"
        self._command = [sys.executable, "-m", module, *arguments]
        self._process: trio.Process | None = None

    async def start(self) -> None:
        """Start the process; standard error goes to the log."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **_environment()},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    async def lines(self) -> Any:
        """Every line of standard output, until the process closes it."""
        assert self._process is not None
        assert self._process.stdout is not None
        buffered = b""
        async for chunk in self._process.stdout:
            *lines, buffered = (buffered + chunk).split(b"\n")
            if len(buffered) > LINE_BYTES_MAX:
                raise ProcessFailed(f"{self.name} writes a line without end")
            for line in lines:
                yield line.decode(errors="replace")

    async def follow(self, listen: Listener) -> int:
        """Hand every event to `listen` until the process ends, and return its exit code."""
        assert self._process is not None
        async for line in self.lines():
            listen(events.read(line))
        return await self._process.wait()

    async def work(self, listen: Listener) -> None:
        """Start, follow to the end, and raise ProcessFailed when it does not end well."""
        await self.start()
        code = await self.follow(listen)
        if code != 0:
            raise ProcessFailed(f"{self.name} ended with exit code {code}; its log ends with:\n{self.log_end()}")

    def kill(self) -> None:
        """End the process and its children as a crash would (SIGKILL)."""
        assert self._process is not None
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill_if_started(self) -> None:
        """As `kill`, for a process that may not have been started."""
        if self._process is not None:
            self.kill()

    async def say(self, line: str) -> None:
        """Write a line to the process's standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        await self._process.stdin.send_all(line.encode() + b"\n")

    async def stop(self) -> int:
        """Ask the process to end (SIGTERM); after a while, kill it. Returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        with trio.move_on_after(STOP_TIMEOUT_SECONDS):
            return await self._process.wait()
        self.kill()
        return await self._process.wait()

    async def wait(self) -> int:
        """The exit code, once the process has ended."""
        assert self._process is not None
        return await self._process.wait()

    def log_end(self, lines: int = 20) -> str:
        """The last lines of what the process wrote to standard error."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


def _environment() -> dict[str, str]:
    """So that Spark's Python workers are this Python, and find the data source even where it is not installed."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {"PYTHONUNBUFFERED": "1", "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}


class Broker(Process):
    """`fencepost serve`; a restart takes the same port."""

    def __init__(self, directory: Path, name: str, where: Sequence[str]) -> None:
        """`where` are the options that say where it keeps the records."""
        super().__init__(name, "fencepost", [], directory)
        self._where = where
        self.host, self.port = "127.0.0.1", 0
        self.ready_line = ""

    @property
    def address(self) -> str:
        """HOST:PORT for clients."""
        return f"{self.host}:{self.port}"

    async def start(self) -> None:
        """Start and return once the broker says that it is ready."""
        listen = ["--listen", f"{self.host}:{self.port}"]
        self._command = [sys.executable, "-m", "fencepost", "serve", *self._where, *listen]
        await super().start()
        self.ready_line = ""
        with trio.move_on_after(READY_TIMEOUT_SECONDS):
            async for line in self.lines():
                self.ready_line = line
                break
        found = READY.match(self.ready_line)
        if found is None:
            self.kill()
            raise ProcessFailed(f"the broker is not ready; its log ends with:\n{self.log_end()}")
        self.port = int(found["port"])

    async def kill_and_wait(self) -> None:
        """SIGKILL, and return when all its processes are gone, so that their ports are free."""
        self.kill()
        async for _ in self.lines():
            """All of them have its standard output."""
        await self.wait()
