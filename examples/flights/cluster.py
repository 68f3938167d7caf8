"""Three brokers that keep nothing: PostgreSQL has the order, a directory of objects the records."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import trio

from examples.flights.postgres import Postgres
from examples.flights.processes import Broker, NoteKill, ProcessFailed, Tell

TAKEOVER_SECONDS_MAX = 60.0
LEASE_MS = 10_000
"""More than PostgreSQL needs to start again: the brokers keep their partitions then."""
BROKERS = (1, 2, 3)
SHARE = 60
"""Slots of each broker at least; there are 256, and rendezvous hashing gives these three 70 to 108."""


class ClusterBroker(Broker):
    """One broker of the cluster; a restart takes the same port."""

    def __init__(self, directory: Path, number: int, stores: list[str]) -> None:
        settings = {"node.id": number, "cluster.lease.ms": LEASE_MS, "cluster.active.brokers": "all"}
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        super().__init__(directory, f"broker-{number}", [*stores, *words])
        self.number = number


class Cluster:
    """PostgreSQL, objects, and three brokers; the demo uses it as it uses a broker of several cores."""

    kills_wanted = ("broker killed", "database killed")

    def __init__(self, directory: Path) -> None:
        """Raises NoPostgres."""
        self._directory = directory
        self._postgres = Postgres(directory / "logs" / "postgres.log")
        self._objects = directory / "objects"
        self._stores = ["--store", self._postgres.address, "--objects", f"file://{self._objects}"]
        self._brokers = [ClusterBroker(directory, number, self._stores) for number in BROKERS]

    @property
    def address(self) -> str:
        """HOST:PORT of each, for clients."""
        return ",".join(broker.address for broker in self._brokers)

    @property
    def ready_line(self) -> str:
        """What the brokers printed."""
        return "\n          ".join(broker.ready_line for broker in self._brokers)

    async def start(self) -> None:
        """Start everything; return when each broker leads its share."""
        self._objects.mkdir(parents=True)
        await self._postgres.make()
        await self._postgres.start()
        for broker in self._brokers:
            await broker.start()
        await self._until(lambda slots: min(slots.values()) >= SHARE)

    async def break_down(self, note: NoteKill, tell: Tell) -> None:
        """Kill one broker, start it again when the others lead its partitions, then PostgreSQL likewise."""
        victim = self._brokers[0]
        note("broker killed")
        began = trio.current_time()
        await victim.kill_and_wait()
        tell("[bold red]kill -9[/bold red] one of three brokers, while everybody works")
        await self._until(lambda slots: not slots[victim.number])
        tell(f"the others lead its partitions after {trio.current_time() - began:.1f} s")
        await victim.start()
        await self._until(lambda slots: slots[victim.number] >= SHARE)
        tell(f"{victim.name} leads its share again after {trio.current_time() - began:.1f} s")
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

    async def _until(self, enough: Callable[[dict[int, int]], bool]) -> None:
        """Return when the brokers own as many slots as that."""
        owners = [sys.executable, "-m", "fencepost", "cluster", "owners", *self._stores[:2], "--json"]
        with trio.move_on_after(TAKEOVER_SECONDS_MAX):
            while True:
                done = await trio.run_process(owners, capture_stdout=True, capture_stderr=True, check=False)
                found = json.loads(done.stdout)["brokers"] if done.stdout else []
                slots = {one["broker"]: one["slots"] for one in found}
                if slots.keys() >= set(BROKERS) and enough(slots):
                    return
                await trio.sleep(0.1)
        raise ProcessFailed("the brokers do not take their partitions over; their logs have the reason")
