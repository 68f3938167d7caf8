"""A cluster for runs that kill: brokers with named steps, each with a proxy of its own before PostgreSQL; S3."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from fencepost.broker.cluster.database.postgres import PostgresEngine
from fencepost.broker.cluster.engine import StillAlive
from fencepost.broker.cluster.objects.object_store import open_objects
from fencepost.testing.reserved_port import reserve_port
from tests.kit.cluster_processes import ClusterBrokerProcess, ClusterProcesses
from tests.kit.garbage import collect
from tests.kit.http_faults import FaultyProxy
from tests.kit.postgres_pair import PostgresPair
from tests.kit.postgres_proxy import PostgresProxy
from tests.kit.postgres_server import PostgresServer
from tests.kit.s3_server import S3Server
from tests.kit.stepped_broker import CONTROL, PLANTED
from tests.kit.waiting import until

WAIT_SECONDS = 60.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "cluster.lease.ms": str(ClusterProcesses.LEASE_MS),
    "cluster.inline.max.bytes": "1500",
    "cluster.inline.bytes.per.second": "0",
}
"""Rounds of a few records are inline, larger ones have an object."""


class SteppedBroker(ClusterBrokerProcess):
    """One broker, its way to the database, and what is to happen at its steps."""

    def __init__(
        self,
        work_dir: Path,
        node_id: int,
        store: str,
        s3: S3Server,
        objects: FaultyProxy,
        planted: str,
        settings: Mapping[str, str],
    ) -> None:
        self.database = PostgresProxy(_socket(store))
        through = f"host=127.0.0.1 port={self.database.port} sslmode=disable gssencmode=disable"
        super().__init__(work_dir, node_id, f"{through} {store.partition(' ')[2]}", s3.url, {**SETTINGS, **settings})
        self._control = work_dir / "next-step"
        work_dir.mkdir(parents=True)
        options = s3.options(objects.endpoint)
        self.environment = {
            "AWS_ENDPOINT_URL": options["endpoint"],
            "AWS_ACCESS_KEY_ID": options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
            "AWS_REGION": options["region"],
            CONTROL: str(self._control),
            PLANTED: planted,
        }

    def command(self) -> list[str]:
        python, dash_m, _, *rest = super().command()
        return [python, dash_m, "tests.kit.stepped_broker", *rest]

    def order(self, action: str, step: str, count: int = 1) -> None:
        """`kill` or `hold` the process when it comes to the step for the count-th time."""
        written = self._control.with_suffix(".new")
        written.write_text(f"{action} {count} {step}")
        written.rename(self._control)

    def take_back(self) -> bool:
        """Forget the order; whether it had come to that."""
        waited = self._control.exists()
        self._control.unlink(missing_ok=True)
        self._control.with_suffix(".held").unlink(missing_ok=True)
        return not waited

    def cut_from_brokers(self, cut: bool) -> None:
        """From now on it can or cannot ask other brokers."""
        mark = self._control.with_suffix(".cut")
        if cut:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)

    def is_held(self) -> bool:
        """Whether the process waits at its step."""
        return self._control.with_suffix(".held").exists()


class KillCluster:
    """A context manager: PostgreSQL, an S3 server behind a proxy with faults, and brokers.

    Of two brokers one is active; of more, all are.
    """

    def __init__(
        self, work_dir: Path, server: PostgresServer | PostgresPair, planted: str = "", brokers: int = 2
    ) -> None:
        self._pair = server if isinstance(server, PostgresPair) else None
        self._server = server.primary if isinstance(server, PostgresPair) else server
        self._stack = ExitStack()
        self._processes = ClusterProcesses(work_dir, self._server)
        self._work_dir = work_dir
        self._planted = planted
        self._count = brokers
        self._s3 = S3Server()
        self.brokers: dict[int, SteppedBroker] = {}
        self.slot = 0
        """Whose owner `active` returns."""

    def __enter__(self) -> Self:
        with self._stack:
            self._stack.enter_context(self._processes)
            self._stack.enter_context(self._s3)
            self.objects = self._stack.enter_context(FaultyProxy(self._s3.port))
            for node_id in range(1, self._count + 1):
                where = self._work_dir / f"broker-{node_id}"
                store, settings = (
                    self._processes.store,
                    {"cluster.active.brokers": "one" if self._count == 2 else "all"},
                )
                broker = SteppedBroker(where, node_id, store, self._s3, self.objects, self._planted, settings)
                self._stack.enter_context(broker.database)
                broker.port = reserve_port(broker, broker.host)
                self.brokers[node_id] = broker
                self._stack.enter_context(broker)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.address for broker in self.brokers.values())

    def active(self) -> SteppedBroker:
        """The owner of `slot`; of two brokers it owns all."""
        owner = None

        def owned() -> bool:
            nonlocal owner
            owner = self._ask(f"SELECT broker FROM fencepost.slot WHERE slot = {self.slot}")
            return owner is not None

        until(owned, seconds=WAIT_SECONDS)
        assert owner is not None
        return self.brokers[owner]

    def other(self, broker: SteppedBroker) -> SteppedBroker:
        """Another one."""
        return self.brokers[broker.node_id % self._count + 1]

    def join_as(self, broker: SteppedBroker) -> None:
        """As another process with its id, once its lease has ended."""
        engine = PostgresEngine(self._processes.store)

        def joined() -> bool:
            try:
                engine.join(broker.node_id, "{}", ClusterProcesses.LEASE_MS)
            except StillAlive:
                return False
            return True

        until(joined, seconds=WAIT_SECONDS)
        engine.close()

    def kill_database(self) -> None:
        """And start it again."""
        self._server.kill()
        self._server.start()

    def fail_over_database(self) -> None:
        """To the synchronous standby, which gets a standby of its own."""
        assert self._pair is not None, "the database has no standby"
        gone = self._server
        self._pair.fail_over()
        self._server = self._pair.primary
        self._processes.store = self._processes.store.replace(str(gone.directory), str(self._server.directory))
        for broker in self.brokers.values():
            broker.database.upstream = _socket(self._processes.store)

    def collect_garbage(self) -> int:
        """With claims of any age."""
        engine = PostgresEngine(self._processes.store)
        cluster_id = engine.cluster_id("there is one")
        objects = open_objects(self._s3.url, cluster_id, self._s3.options())
        count = collect(engine, objects, idle_ms=0)
        engine.close()
        return count

    def _ask(self, query: str) -> int | None:
        with psycopg.connect(self._processes.store) as connection:
            found = connection.execute(query.encode()).fetchone()
        return found[0] if found is not None else None


def _socket(conninfo: str) -> str:
    return f"{conninfo.partition('host=')[2].split()[0]}/.s.PGSQL.5432"
