"""A PostgreSQL server of the demo's own: in a new directory, reached by a Unix socket, killed and started again."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import trio

START_SECONDS_MAX = 60.0
SUPERUSER = "demo"
UNPRIVILEGED = ("postgres", "nobody")
"""Where we are root, PostgreSQL runs as one of these: it refuses to run as root."""
MISSING = """PostgreSQL is missing: neither the PATH nor /usr/lib/postgresql has initdb.
  Debian, Ubuntu:  apt-get install postgresql
  macOS:           brew install postgresql"""


class NoPostgres(Exception):
    """PostgreSQL is not installed, or does not start; the text says what to do."""


def binaries() -> Path:
    """The directory of `initdb`. Raises NoPostgres."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise NoPostgres(MISSING)
    return max(found, key=lambda path: float(path.parts[-3])).parent


class Postgres:
    """The server. Its durability is as it comes: fsync, synchronous_commit and full_page_writes are on."""

    def __init__(self, log: Path) -> None:
        """Raises NoPostgres."""
        self._binaries = binaries()
        self._log = log
        # A socket's path has to be short, and another user must be able to enter the directory.
        self._directory = Path(tempfile.mkdtemp(prefix="flights-pg-"))
        self._user = next((name for name in UNPRIVILEGED if _exists(name)), None) if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """For `fencepost serve --store`."""
        return f"host={self._directory} user={SUPERUSER} dbname=postgres"

    async def make(self) -> None:
        """Make the directory. Raises NoPostgres."""
        if self._user is not None:
            shutil.chown(self._directory, self._user)
        words = ["initdb", "--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8", "--no-locale"]
        command = [str(self._binaries / words[0]), *words[1:], "-D", str(self._directory / "data")]
        done = await trio.run_process(
            command, user=self._user, cwd="/", capture_stdout=True, capture_stderr=True, check=False
        )
        if done.returncode != 0:
            raise NoPostgres(f"initdb failed: {done.stderr.decode(errors='replace')}")

    async def start(self) -> None:
        """Start it, after a crash as well, and return when it takes connections. Raises NoPostgres."""
        import psycopg

        with trio.move_on_after(START_SECONDS_MAX):
            while True:
                if self._process is None or self._process.poll() is not None:
                    self._spawn()
                try:
                    psycopg.connect(self.address).close()
                except psycopg.OperationalError:
                    await trio.sleep(0.1)
                else:
                    return
        raise NoPostgres(f"PostgreSQL does not start; its log is {self._log}")

    async def kill_and_wait(self) -> None:
        """End it as a crash would."""
        assert self._process is not None
        self._process.kill()
        await trio.to_thread.run_sync(self._process.wait)

    def end(self) -> None:
        """End it with all its processes, and delete its directory."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _spawn(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        settings = ["-c", "listen_addresses=", "-k", str(self._directory)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", str(self._directory / "data"), *settings],
                user=self._user,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
