"""Two brokers that keep nothing: PostgreSQL has the order, a directory of objects the records."""

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

import trio

from examples.flights.postgres import Postgres
from examples.flights.processes import Broker, NoteKill, ProcessFailed, Tell

TAKEOVER_SECONDS_MAX = 60.0
LEASE_MS = 10_000
"""More than PostgreSQL needs to start again: the broker that is active then stays active."""


class ClusterBroker(Broker):
    """One broker of the cluster; a restart takes the same port."""

    def __init__(self, directory: Path, number: int, stores: list[str]) -> None:
        super().__init__(directory, f"broker-{number}")
        self._where = [
            *stores,
            "--set",
            f"node.id={number}",
            "--set",
            f"cluster.lease.ms={LEASE_MS}",
            "--metrics",
            "127.0.0.1:0",
        ]

    def role(self) -> str:
        """What the broker's /ready answers; `none` if it does not answer."""
        facts = dict(word.split("=", 1) for word in self.ready_line.split() if "=" in word)
        try:
            with urllib.request.urlopen(f"http://{facts['metrics']}/ready", timeout=10) as response:
                return str(json.load(response)["role"])
        except (OSError, urllib.error.URLError):
            return "none"


class Cluster:
    """PostgreSQL, objects, and two brokers; the demo uses it as it uses a single broker."""

    kills_wanted = ("broker killed", "database killed")

    def __init__(self, directory: Path) -> None:
        """Raises NoPostgres."""
        self._directory = directory
        self._postgres = Postgres(directory / "logs" / "postgres.log")
        self._objects = directory / "objects"
        self._stores = ["--store", self._postgres.address, "--objects", f"file://{self._objects}"]
        self._brokers = [ClusterBroker(directory, number, self._stores) for number in (1, 2)]

    @property
    def address(self) -> str:
        """HOST:PORT of both, for clients."""
        return ",".join(broker.address for broker in self._brokers)

    @property
    def ready_line(self) -> str:
        """What the brokers printed."""
        return "\n          ".join(broker.ready_line for broker in self._brokers)

    async def start(self) -> None:
        """Start everything; the first broker is active."""
        self._objects.mkdir(parents=True)
        await self._postgres.make()
        await self._postgres.start()
        for broker in self._brokers:
            await broker.start()

    async def break_down(self, note: NoteKill, tell: Tell) -> None:
        """Kill the active broker, start it again as a standby, then kill PostgreSQL and start it again."""
        active = await self._active()
        note("broker killed")
        began = trio.current_time()
        await active.kill_and_wait()
        tell("[bold red]kill -9[/bold red] the active broker, while everybody works")
        successor = await self._active()
        tell(
            f"{successor.name} is active after {trio.current_time() - began:.1f} s; {active.name} stands by from now on"
        )
        await active.start()
        note("database killed")
        began = trio.current_time()
        await self._postgres.kill_and_wait()
        tell("[bold red]kill -9[/bold red] PostgreSQL")
        await self._postgres.start()
        tell(f"PostgreSQL is back after {trio.current_time() - began:.1f} s")

    async def stop(self) -> int:
        """Ask the brokers to end, then compare rows and objects. 0 if all ended well and nothing is damaged."""
        codes = [await broker.stop() for broker in self._brokers]
        verify = [sys.executable, "-m", "fencepost", "verify", *self._stores]
        done = await trio.run_process(verify, capture_stdout=True, check=False)
        (self._directory / "logs" / "verify.log").write_bytes(done.stdout)
        return max(*codes, done.returncode, key=abs)

    def kill(self) -> None:
        """End all processes, and delete the database."""
        for broker in self._brokers:
            broker.kill_if_started()
        self._postgres.end()

    async def _active(self) -> ClusterBroker:
        with trio.move_on_after(TAKEOVER_SECONDS_MAX):
            while True:
                for broker in self._brokers:
                    if await trio.to_thread.run_sync(broker.role) == "active":
                        return broker
                await trio.sleep(0.1)
        raise ProcessFailed("no broker is active; their logs have the reason")
