"""A cluster of real broker processes over a PostgreSQL server and a directory of objects, for tests."""

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost.broker.cluster.database.postgres import PostgresEngine
from fencepost.broker.cluster.database.schema import upgrade
from fencepost.broker.cluster.engine import Slot
from tests.kit.broker_process import BrokerProcess
from tests.kit.postgres_server import PostgresServer
from tests.kit.waiting import until


class ClusterBrokerProcess(BrokerProcess):
    """One `fencepost serve --store`."""

    def __init__(
        self, work_dir: Path, node_id: int, store: str, objects: str | Path, settings: Mapping[str, str]
    ) -> None:
        """`objects`: an address, or a directory."""
        super().__init__(work_dir, settings={"node.id": str(node_id), **settings})
        self.node_id = node_id
        self._stores = ["--store", store, "--objects", f"file://{objects}" if isinstance(objects, Path) else objects]

    def stores(self) -> list[str]:
        return self._stores


class ClusterProcesses:
    """Brokers over one database. A context manager: all brokers are killed at its end."""

    LEASE_MS = 1500

    def __init__(self, work_dir: Path, server: PostgresServer) -> None:
        self.server = server
        self.objects = work_dir / "objects"
        self.objects.mkdir(parents=True)
        self.database = f"cluster_{secrets.token_hex(4)}"
        self.store = server.conninfo.replace("dbname=postgres", f"dbname={self.database}")
        self._work_dir = work_dir
        self.brokers: dict[int, ClusterBrokerProcess] = {}
        self._engine: PostgresEngine | None = None

    def __enter__(self) -> Self:
        import psycopg

        with psycopg.connect(self.server.conninfo, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{self.database}"'.encode())
        with psycopg.connect(self.store, autocommit=True) as connection:
            upgrade(connection, "fencepost")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            broker.__exit__(kind, error, trace)
        if self._engine is not None:
            self._engine.close()

    @property
    def engine(self) -> PostgresEngine:
        """A connection of the test's own."""
        if self._engine is None:
            self._engine = PostgresEngine(self.store)
        return self._engine

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self, node_id: int, **settings: str) -> ClusterBrokerProcess:
        """A new broker; returns when it listens."""
        # Without inline bursts, so that larger commits put objects.
        own = {"cluster.lease.ms": str(self.LEASE_MS), "cluster.inline.bytes.per.second": "0"}
        shared = {**own, **settings}
        broker = ClusterBrokerProcess(
            self._work_dir / f"broker-{node_id}", node_id, self.store, f"file://{self.objects}", shared
        )
        self.brokers[node_id] = broker
        return broker.start()

    def owner(self) -> Slot:
        """The first slot: all have one owner."""
        return self.engine.slots()[0]

    def wait_active(self, node_id: int, seconds: float = 30) -> float:
        """Return when that broker owns the slots: the seconds that it took."""
        began = time.monotonic()
        until(lambda: self.owner().broker == node_id, seconds=seconds)
        return time.monotonic() - began

    def commits(self) -> int:
        """How many commits the active broker has made."""
        import psycopg

        with psycopg.connect(self.store) as connection:
            found = connection.execute("SELECT sum(commit_seq) FROM fencepost.broker").fetchone()
        assert found is not None
        return int(found[0])

    def rows(self) -> dict[str, int]:
        """The number of rows of each log, by its name."""
        import psycopg

        with psycopg.connect(self.store, client_encoding="utf8") as connection:
            found = connection.execute(
                "SELECT name, count(entry.log) FROM fencepost.head LEFT JOIN fencepost.entry USING (log) GROUP BY name"
            ).fetchall()
        return {str(name): int(count) for name, count in found}

    def bytes(self, prefix: str) -> int:
        """The size of the logs whose names begin so."""
        return sum(head.size_bytes for head in self.engine.heads() if head.name.startswith(prefix))

    def files(self) -> set[Path]:
        """The files of the objects."""
        return {path for path in self.objects.rglob("*") if path.is_file() and path.parent.name != "owner"}
