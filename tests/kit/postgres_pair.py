"""A PostgreSQL server with a synchronous standby that can take its place, again and again."""

from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kit.postgres_server import PostgresServer
from tests.kit.postgres_standby import PostgresStandby


class PostgresPair:
    """A context manager; raises PostgresFailed where it cannot be set up."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self.primary = PostgresServer(binaries)
        """The server that accepts writes."""
        self._standby: PostgresStandby | None = None

    def __enter__(self) -> Self:
        import psycopg

        self.primary.__enter__()
        with psycopg.connect(self.primary.conninfo, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")  # the standby's backup has it, too
            connection.execute("SELECT pg_reload_conf()")
        self._follow()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._standby is not None:
            self._standby.__exit__(kind, error, trace)
        self.primary.__exit__(kind, error, trace)

    def fail_over(self) -> None:
        """Kill the primary and promote its standby. Commits continue when that one has a standby of its own."""
        gone, standby = self.primary, self._standby
        assert standby is not None
        standby.wait_streaming()
        gone.kill()
        standby.promote()
        self.primary, self._standby = standby, None
        gone.__exit__(None, None, None)
        self._follow()

    def _follow(self) -> None:
        """With the settings of the primary, of which a backup is made."""
        self._standby = PostgresStandby(self._binaries, self.primary)
        self._standby.__enter__()
        self._standby.wait_streaming()
