"""A PostgreSQL server that follows another one by streaming replication, to be promoted when that one is gone."""

import shutil
import subprocess
import time
from pathlib import Path
from typing import Self

from tests.kit.postgres_server import START_SECONDS_MAX, USER, PostgresFailed, PostgresServer


class PostgresStandby(PostgresServer):
    """A context manager; raises PostgresFailed where it cannot be set up."""

    def __init__(self, binaries: Path, primary: PostgresServer) -> None:
        super().__init__(binaries)
        self._primary = primary

    def __enter__(self) -> Self:
        if self._user is not None:
            shutil.chown(self.directory, self._user)
        source = ["-h", str(self._primary.directory), "-U", USER, "--checkpoint=fast", "--no-sync", "-R"]
        done = subprocess.run(
            [self._binaries / "pg_basebackup", *source, "-D", self._data],
            user=self._user,
            cwd="/",
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise PostgresFailed(done.stderr.decode(errors="replace"))
        return self.start()

    def _settings(self) -> dict[str, str]:
        return {**super()._settings(), "wal_retrieve_retry_interval": "100ms"}

    def wait_streaming(self) -> None:
        """Return when it receives what the primary writes."""
        import psycopg

        deadline = time.monotonic() + START_SECONDS_MAX
        # Each look is a transaction of its own: within one, PostgreSQL shows the connections of its beginning.
        with psycopg.connect(self._primary.conninfo, autocommit=True, client_encoding="utf8") as connection:
            while not connection.execute("SELECT FROM pg_stat_replication WHERE state = 'streaming'").fetchall():
                if time.monotonic() > deadline:
                    raise PostgresFailed("the standby does not stream")
                time.sleep(0.05)

    def wait_caught_up(self) -> None:
        """Return when it has replayed all that the primary has written so far."""
        import psycopg

        with psycopg.connect(self._primary.conninfo, client_encoding="utf8") as connection:
            (written,) = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone() or ("",)
        deadline = time.monotonic() + START_SECONDS_MAX
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            while connection.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [written]).fetchone() != (True,):
                if time.monotonic() > deadline:
                    raise PostgresFailed("the standby does not catch up")
                time.sleep(0.02)

    def promote(self) -> None:
        """It accepts writes on return."""
        import psycopg

        with psycopg.connect(self.conninfo) as connection:
            connection.execute("SELECT pg_promote()")
