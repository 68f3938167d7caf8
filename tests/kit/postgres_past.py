"""PostgreSQL servers that can take the place of a primary, and have what it had at an earlier instant.

`hold` is that instant: the primary makes commits then that this server will not have. After the primary was killed,
`take_over` makes this server accept writes.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.kit.postgres_server import START_SECONDS_MAX, USER, PostgresFailed, PostgresServer
from tests.kit.postgres_standby import PostgresStandby
from tests.kit.waiting import until

RESTORE_POINT = "the_instant"


class CopiedServer(PostgresServer):
    """Over a copy of the primary's data directory, as a snapshot of a disk is."""

    def __init__(self, binaries: Path, primary: PostgresServer) -> None:
        super().__init__(binaries)
        self._primary = primary

    def __enter__(self) -> Self:
        if self._user is not None:
            shutil.chown(self.directory, self._user)
        return self

    def hold(self) -> None:
        """Copy the directory while the primary is down for a moment."""
        self._primary.kill()
        subprocess.run(["cp", "-a", self._primary.directory / "data", self._data], check=True)
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        self._primary.start()

    def take_over(self) -> None:
        """Start, as after a crash."""
        self.start()


class LaggingStandby(PostgresStandby):
    """A standby with asynchronous replication that receives nothing more from an instant on."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.wait_streaming()
        return self

    def hold(self) -> None:
        """Stop the WAL receiver."""
        self.wait_caught_up()
        _execute(self, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
        until(lambda: _execute(self, "SELECT FROM pg_stat_wal_receiver") == [], seconds=START_SECONDS_MAX)

    def take_over(self) -> None:
        """Become the primary."""
        self.promote()


class RestoredServer(PostgresServer):
    """A base backup that is recovered to an instant (PITR), with the WAL of the dead primary as the archive."""

    def __init__(self, binaries: Path, primary: PostgresServer) -> None:
        super().__init__(binaries)
        self._primary = primary

    def __enter__(self) -> Self:
        if self._user is not None:
            shutil.chown(self.directory, self._user)
        source = ["-h", str(self._primary.directory), "-U", USER, "--checkpoint=fast", "--no-sync"]
        command = [str(self._binaries / "pg_basebackup"), *source, "-D", str(self._data)]
        done = subprocess.run(command, user=self._user, cwd="/", capture_output=True, check=False)
        if done.returncode != 0:
            raise PostgresFailed(done.stderr.decode(errors="replace"))
        return self

    def hold(self) -> None:
        """Name the instant in the primary's WAL."""
        _execute(self._primary, f"SELECT pg_create_restore_point('{RESTORE_POINT}_{self.directory.name}')")

    def take_over(self) -> None:
        """Recover, and return when the server accepts writes."""
        settings = {
            "restore_command": f"cp {self._primary.directory / 'data' / 'pg_wal'}/%f %p",
            "recovery_target_name": f"{RESTORE_POINT}_{self.directory.name}",
            "recovery_target_action": "promote",
        }
        with (self._data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        signal = self._data / "recovery.signal"
        signal.touch()
        if self._user is not None:
            shutil.chown(signal, self._user)
        self.start()
        until(lambda: _execute(self, "SELECT pg_is_in_recovery()") == [(False,)], seconds=START_SECONDS_MAX)
        for name in settings:
            _execute(self, f"ALTER SYSTEM RESET {name}")


KINDS: dict[str, Callable[[Path, PostgresServer], CopiedServer | LaggingStandby | RestoredServer]] = {
    "copied": CopiedServer,
    "streaming": LaggingStandby,
    "pitr": RestoredServer,
}
"""The servers by the name of their kind."""


def _execute(server: PostgresServer, *statements: str) -> list[tuple[object, ...]]:
    """The rows of the last statement."""
    import psycopg

    with psycopg.connect(server.conninfo, autocommit=True, client_encoding="utf8") as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description is not None else []
