"""`python -m tests.simulation.cluster_world`: clusters without a disk, one world for each seed.

With odd seeds two brokers, of which one is active; with even ones three, and all are.

The brokers are the real `ClusterBroker` over SimEngine. They are killed, stopped and paused. Requests to the database
and to the object store are lost before or after they happened, or come later, or find no store for a while. Clients
and rules are those of the other worlds (`whole_world.py`, `oracles.py`).
"""

import dataclasses
import os
import sys
import tempfile
from random import Random
from types import SimpleNamespace
from typing import NamedTuple

import trio

from fencepost.broker.cluster.engine import log_id
from fencepost.broker.cluster.ownership import spread
from fencepost.coordinator.partitioning import partition_for
from tests.kit.determinism import nap, run_seeded
from tests.kit.history import READ_COMMITTED, READ_UNCOMMITTED, History, Place, Reader
from tests.kit.sim_broker import filter_of, sim_config
from tests.kit.sim_cluster import SimCluster, SimMember, StoreWeather
from tests.kit.sim_network import Fate, Request, SimNetwork
from tests.kit.sim_threads import run_sync
from tests.simulation.cluster_lines import ClusterLine
from tests.simulation.judging import Result, judged
from tests.simulation.lines import Line, create_topics
from tests.simulation.many_worlds import arguments_of, run_worlds
from tests.simulation.node_state import GROUPS, open_transactions, state_of_all
from tests.simulation.sim_readers import follow, read_all
from tests.simulation.sim_writers import Copier, PlainWriter, Program
from tests.simulation.spoilt_cluster import SPOILT
from tests.simulation.weather import SeededWeather
from tests.simulation.whole_world import Fence, Outcome

MODULE = "tests.simulation.cluster_world"
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where the caches are: no rule here is about disks. A broker that is killed leaves its own, so a world deletes all."""
LEASE_MS = 1000
INTERNAL_PARTITIONS = 2
STRAYING = 0.05
"""How often a request goes to any broker."""
PROGRAMS_END_SECONDS = 120.0
REST_SECONDS = 10.0
"""Longer than an outage of the stores, the takeover behind it, and the timeout of a transaction, which begins again."""


class PausingWeather:
    """The weather of one broker's network: nothing passes while the broker is paused."""

    def __init__(self, weather: SeededWeather) -> None:
        self.member: SimMember | None = None
        self._weather = weather

    def dial(self, client_id: str) -> Fate:
        return self._later(self._weather.dial(client_id))

    def request(self, request: Request) -> Fate:
        return self._later(self._weather.request(request))

    def answer(self, request: Request) -> Fate:
        return self._later(self._weather.answer(request))

    def _later(self, fate: Fate) -> Fate:
        paused = 0.0 if self.member is None else self.member.paused_until - trio.current_time()
        return dataclasses.replace(fate, delay_seconds=fate.delay_seconds + max(0.0, paused))


class Event(NamedTuple):
    """One blow."""

    at_seconds: float
    kind: str
    amount: float


BROKERS = 0  # if it is not 0, all worlds have so many
KINDS = ("kill", "kill", "stop", "pause", "pause", "stores down", "kill the standby")


class ClusterWorld:
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        random = self.random = Random(seed)
        seconds = random.uniform(3.0, 8.0)
        self.plan = SimpleNamespace(
            seconds=seconds,
            transactions=random.randint(4, 15),
            impatience=random.choice((0.0, 0.2)),
            freezes=random.choice((0.0, 0.02, 0.1)),
            partitions=random.randint(1, 3),
            writers=random.randint(1, 3),
            copier=random.random() < 0.5,
            collect_idle_ms=random.choice((200, 3000)),
            inline_bytes=random.choice((0, 200, 16 << 10)),
            brokers=BROKERS or (2 if seed % 2 else 3),
            events=[
                Event(random.uniform(0.1, seconds), random.choice(KINDS), random.uniform(0.1, 2.5))
                for _ in range(random.choice((1, 2, 3, 5)))
            ],
        )
        self.history = History([], [], {READ_COMMITTED: {}, READ_UNCOMMITTED: {}}, [])
        self.outcome = Outcome(seed, [], self.history)
        self.weather = SeededWeather(self.fork())
        self.writers_done = self.created = False
        self.places: list[Place] = [("in", number) for number in range(self.plan.partitions)] + [("side", 0)]
        self._lines: list[Line] = []

    # What programs ask

    def fork(self) -> Random:
        """Chance for a part that draws at its own times."""
        return Random(self.random.getrandbits(64))

    def tell(self, event: str) -> None:
        """One line of the trace."""
        self.outcome.trace.append(f"{trio.current_time():9.4f} {event}")

    def line(self, client_id: str, *, spared: bool = False) -> Line:
        """A client's line to the cluster."""
        line = ClusterLine(self, client_id)
        self._lines.append(line)
        return line

    def leader(self, topic: str, partition: int) -> SimMember | None:
        """The broker that owns a partition, according to the database."""
        for member in self.cluster.members:
            found = None if member.node is None else member.node.metadata.image.topics_by_name.get(topic)
            if found is not None:
                return self.cluster.owner(log_id(found.topic_id, partition))
        return None

    def coordinator(self, topic: str, name: str) -> SimMember | None:
        """The broker that coordinates a group or a transactional id."""
        return self.leader(topic, partition_for(name, INTERNAL_PARTITIONS))

    def knows_topics(self, member: SimMember) -> bool:
        """A standby that has just started answers UNKNOWN_TOPIC_OR_PARTITION, as with Kafka."""
        return member.node is not None and (not self.created or "in" in member.node.metadata.image.topics_by_name)

    def note_fence(self, transactional_id: str, identity: tuple[int, int], version: int) -> None:
        """A producer has become that of an id: the ends of all logs in the database, later rows are its own."""
        ends: dict[Place, int] = {}
        for head in self.cluster.database.heads.values():
            topic, _, partition = head.name.rpartition("-")
            ends[topic, int(partition)] = head.next
        self.outcome.fences.append(Fence(transactional_id, *identity, ends, version))

    def start_program(self, program: Program) -> None:
        """A task for a program."""
        program.nursery.start_soon(program.run)

    # The course of the world

    async def run(self) -> Outcome:
        """Everything, from the first start to the last look."""
        to_thread, trio.to_thread.run_sync = trio.to_thread.run_sync, run_sync  # type: ignore[assignment]
        sleep, trio.sleep = trio.sleep, nap
        try:
            with tempfile.TemporaryDirectory(prefix="cluster-world-", dir=MEMORY) as self._directory:
                async with trio.open_nursery() as nursery:
                    await self._run(nursery)
                    nursery.cancel_scope.cancel()
        finally:
            trio.to_thread.run_sync, trio.sleep = to_thread, sleep
        return self.outcome

    async def _run(self, nursery: trio.Nursery) -> None:
        stores = StoreWeather(self.fork())
        cluster = self.cluster = SimCluster(nursery, self.fork(), stores)
        settings = {
            "cluster.lease.ms": str(LEASE_MS),
            "cluster.linger.ms": "5",
            "cluster.cache.directory": self._directory,
            "cluster.inline.max.bytes": str(self.plan.inline_bytes),
            "allow.remote.broker.requests": "true",
            "cluster.active.brokers": "one" if self.plan.brokers == 2 else "all",
        }
        for number in range(1, self.plan.brokers + 1):
            config = sim_config({**filter_of(self.outcome.seed), **settings, "node.id": str(number)})
            weather = PausingWeather(self.weather)
            member = SimMember(cluster, number, config, self.fork(), SimNetwork(nursery, weather, self.tell))
            weather.member = member
            cluster.members.append(member)
            member.start()
            await cluster.active()
        await self._all_lead()
        self.weather.calm = True
        topics = {"in": self.plan.partitions, "side": 1, "out": self.plan.partitions}
        admin = self.line("admin")
        await create_topics(admin, topics)
        self.created = True
        admin.close()
        self.weather.calm = stores.calm = False
        async with trio.open_nursery() as side:
            side.start_soon(cluster.run, self.plan.collect_idle_ms)
            side.start_soon(self._keep_alive)
            side.start_soon(self._follow, READ_COMMITTED, 0.2)
            side.start_soon(self._follow, READ_UNCOMMITTED, 0.7)
            with trio.move_on_after(PROGRAMS_END_SECONDS) as limit:
                await self._run_programs()
            if limit.cancelled_caught:
                self.outcome.broken.append("the programs do not end")
            await nap(REST_SECONDS)
            with trio.move_on_after(PROGRAMS_END_SECONDS) as limit:
                await self._look_back()
            if limit.cancelled_caught:
                self.outcome.broken.append("the logs cannot be read at the end")
            side.cancel_scope.cancel()
        self.outcome.seconds = trio.current_time()
        self.outcome.requests = sum(member.network.frames for member in cluster.members)
        self.outcome.lives = sum(member.lives for member in cluster.members)
        for line in self._lines:
            line.close()
        for member in cluster.members:
            await member.kill()
        self._note_deaths()

    async def _all_lead(self) -> None:
        """Wait until the brokers have spread the slots, move no more, and their coordinators answer."""
        numbers = [member.number for member in self.cluster.members]
        wanted = spread(frozenset(numbers)) if self.plan.brokers > 2 else None
        while True:
            await self.cluster.active()
            answered = all(not all(node.groups.refusal(group) for node in self.cluster.nodes) for group in GROUPS)
            if answered and wanted in (None, tuple(slot.broker for slot in self.cluster.database.slots)):
                return
            await nap(0.02)

    async def _run_programs(self) -> None:
        """Faults and programs side by side; then calm; then the programs end by themselves."""
        plan = self.plan
        async with trio.open_nursery() as copiers:
            if plan.copier:
                self.history.transforms.append(("in", "out"))
                self._begin(Copier(self, "copier", 2, self.fork(), "in", "out", plan.partitions), copiers)  # type: ignore[arg-type]
            async with trio.open_nursery() as writers:
                for number in range(plan.writers):
                    writer = PlainWriter(self, f"writer{number}", 2, self.fork(), self.places, plan.transactions)  # type: ignore[arg-type]
                    self._begin(writer, writers)
                for event in plan.events:
                    writers.start_soon(self._strike, event)
                await nap(plan.seconds)
                self.tell("from here on nothing goes wrong any more")
                self.weather.calm = self.cluster.weather.calm = True
            self.writers_done = True

    def _begin(self, program: Program, nursery: trio.Nursery) -> None:
        program.nursery = nursery
        self.start_program(program)

    async def _follow(self, isolation: str, pause_seconds: float) -> None:
        reader = Reader(isolation, isolation)
        self.history.readers.append(reader)
        await follow(self.line(f"follower {isolation}"), reader, self.places, pause_seconds)

    async def _keep_alive(self) -> None:
        """Start a broker again when it is gone."""
        while True:
            await nap(0.1)
            self._note_deaths()
            for member in self.cluster.members:
                if member.broker is None and not self._down:
                    member.start()
                    self.tell(f"broker {member.number} starts")

    def _note_deaths(self) -> None:
        for member in self.cluster.members:
            if member.failure is not None:
                self.outcome.broken.append(f"broker {member.number} died: {member.failure!r}")
                member.failure = None

    async def _strike(self, event: Event) -> None:
        await nap(event.at_seconds)
        cluster = self.cluster
        active = self.random.choice([member for member in cluster.members if member.is_active] or cluster.members)
        other = next(member for member in cluster.members if member is not active)
        self.tell(f"{event.kind}, {event.amount:.2f} s, broker {active.number} is active")
        if event.kind == "stores down":
            cluster.weather.down_until = trio.current_time() + event.amount
        elif event.kind == "pause":
            active.paused_until = trio.current_time() + event.amount
        elif event.kind == "stop":
            await active.stop()
        else:
            await (active if event.kind == "kill" else other).kill()

    _down = False

    # The end

    async def _look_back(self) -> None:
        """What is there at the end, seen live, and by brokers that take over after all were killed."""
        await self._all_lead()
        self.outcome.still_open = [what for node in self.cluster.nodes for what in open_transactions(node)]
        await self._read_everything("live")
        self.outcome.live = await state_of_all(self.cluster.nodes)
        self._down = True
        for one in self.cluster.members:
            await one.kill()
        self._down = False
        await self._all_lead()
        await self._read_everything("after a crash")
        self.outcome.rebuilt = await state_of_all(self.cluster.nodes)

    async def _read_everything(self, name: str) -> None:
        line = self.line(name)
        everywhere = [*self.places, *(("out", number) for number in range(self.plan.partitions))]
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            logs, raw = await read_all(line, everywhere, isolation == READ_COMMITTED, self.plan.brokers > 2)
            if isolation == READ_UNCOMMITTED:
                self.outcome.raw = raw
            self.history.finals[isolation][name] = logs
        line.close()


def run_world(seed: int) -> Outcome:
    """The world of a seed, from beginning to end."""
    return run_seeded(seed, ClusterWorld(seed).run)


def judge(seed: int) -> Result:
    """One world, and what is wrong with it."""
    return judged(run_world, seed)


def main() -> int:
    """The command; 1 if a world went wrong."""
    parser = arguments_of(MODULE, __doc__, SPOILT)
    parser.add_argument("--brokers", type=int, choices=(2, 3), help="2: one is active, 3: all (by seed)")
    arguments = parser.parse_args()
    globals()["BROKERS"] = arguments.brokers or 0
    return run_worlds(MODULE, judge, arguments, SPOILT)


if __name__ == "__main__":
    sys.exit(main())
