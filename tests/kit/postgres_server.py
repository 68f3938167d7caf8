"""A PostgreSQL server for one test: in its own directory, reached by a Unix socket, to be killed and started again."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pytest

START_SECONDS_MAX = 100.0
USER = "postgres"
UNPRIVILEGED = ("postgres", "nobody")
"""Who runs the server where we are root, which PostgreSQL refuses to run as."""
SETTINGS = {"listen_addresses": "", "max_connections": "100", "shared_buffers": "16MB"}
"""All that concerns durability stays as it comes: fsync, synchronous_commit and full_page_writes are on."""
SYNCFS_SINCE = 14


class PostgresFailed(Exception):
    """The server could not be set up or did not start; the message holds what it said."""


def find_binaries() -> Path | None:
    """The directory of `initdb` and `postgres`: on the PATH, or where Debian keeps them, the newest first."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    found = sorted(versions, key=lambda path: [int(part) for part in path.parts[-3].split(".") if part.isdigit()])
    return found[-1].parent if found else None


class PostgresServer:
    """A context manager; raises PostgresFailed where it cannot be set up."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        # Not below pytest's own directory: only its owner may enter that, and a socket's path has to be short.
        self.directory = Path(tempfile.mkdtemp(prefix="fencepost-pg-"))
        """With its socket and its data."""
        self._data = self.directory / "data"
        self._saved = self.directory / "saved"
        self._log = self.directory / "server.log"
        self._user = next((name for name in UNPRIVILEGED if _exists(name)), None) if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def conninfo(self) -> str:
        """For `psycopg.connect`."""
        return f"host={self.directory} user={USER} dbname=postgres connect_timeout=60"

    @property
    def pid(self) -> int:
        """Of the server's first process: when it dies by kill -9, all others of the server end at once."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def start(self) -> Self:
        """Start it over its directory, after a crash as well, and return when it takes connections."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._try_start(deadline):
            # What a killed server left behind may hold its shared memory for a moment: PostgreSQL refuses to start.
            if time.monotonic() > deadline:
                raise PostgresFailed(self._log.read_text(errors="replace"))
            time.sleep(0.1)
        return self

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def crash(self) -> None:
        """End it with all its backends, as the end of its machine would: killed alone, it leaves some that commit."""
        assert self._process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            server = psutil.Process(self._process.pid)
            server.suspend()  # it starts no more of them
            for backend in server.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    backend.kill()
        self.kill()

    def save(self) -> None:
        """Stop it in order, keep a copy of its data for `go_back`, and start it again: that is what a standby has."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(START_SECONDS_MAX)
        shutil.rmtree(self._saved, ignore_errors=True)
        subprocess.run(["cp", "-a", self._data, self._saved], check=True)
        self.start()

    def go_back(self) -> None:
        """Kill it, and start the copy in its place: what was committed since is lost."""
        self.kill()
        shutil.rmtree(self._data)
        subprocess.run(["cp", "-a", self._saved, self._data], check=True)
        self.start()

    def __enter__(self) -> Self:
        if self._user is not None:
            shutil.chown(self.directory, self._user)
        # Without a locale the encoding is SQL_ASCII, in which a text comes as bytes: what works there works elsewhere.
        options = ["--username", USER, "--auth", "trust", "--no-locale", "--no-sync"]
        command = [self._binaries / "initdb", *options, "-D", self._data]
        done = subprocess.run(command, user=self._user, cwd="/", capture_output=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise PostgresFailed(done.stderr.decode(errors="replace"))
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGQUIT)  # ends its children, too; nobody needs the data any more
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _settings(self) -> dict[str, str]:
        """Also that a start after a crash flushes the file system once, and not each of a thousand files."""
        said = subprocess.run([self._binaries / "postgres", "--version"], capture_output=True, text=True, check=True)
        major = int(said.stdout.split()[2].partition(".")[0])
        at_once = sys.platform == "linux" and major >= SYNCFS_SINCE
        return {**SETTINGS, **({"recovery_init_sync_method": "syncfs"} if at_once else {})}

    def _try_start(self, deadline: float) -> bool:
        import psycopg

        settings = [part for name, value in self._settings().items() for part in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, "-k", self.directory, *settings],
                user=self._user,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.conninfo).close()
            except psycopg.OperationalError:  # not yet: it starts, or recovers from its crash
                time.sleep(0.05)
            else:
                return True
        self.kill()
        return False


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def postgres_or_skip() -> PostgresServer:
    """A server to enter; skips the test where PostgreSQL or its client library is missing."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip(
            "no PostgreSQL: initdb is neither on the PATH nor in /usr/lib/postgresql (apt-get install postgresql)"
        )
    pytest.importorskip(
        "psycopg", reason="psycopg finds no libpq: install PostgreSQL's client library", exc_type=ImportError
    )
    return PostgresServer(binaries)
