"""What all worlds of one consumer group share: a plan, a broker that is killed, places for members, and an end."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import trio

from fencepost.protocol.topics import TopicPartition
from tests.kit.disk_nodes import everything, nothing, sampled
from tests.kit.sim_broker import SimBroker, sim_config
from tests.kit.sim_network import SimNetwork
from tests.simulation.broker_world import BrokerWorld
from tests.simulation.lines import Line
from tests.simulation.sim_readers import committed_offsets

if TYPE_CHECKING:
    from tests.simulation.group_offsets import OffsetBooks, Owner

GROUP = "g"
SESSION_S, REBALANCE_S = 2.0, 3.0
PATIENCE_S = min(SESSION_S, REBALANCE_S)
"""So long nobody silent is given up."""
BEAT_S, AGAIN_S = 0.3, 0.1
TXN_TIMEOUT_MS, TXN_PATIENCE_S = 4000, 1.5
REST_S = 30.0
"""So long after the last fault the group may take to come to rest: ghosts of lost newcomers have to be waited out."""
LOOK_S = 0.2


@dataclass(frozen=True)
class Plan:
    """Everything about a world that is decided before it begins; kinds of worlds have more of it."""

    seconds: float
    """How long things go wrong."""
    sizes: dict[str, int]
    """Topics with their numbers of partitions."""
    members: int
    """How many places there are."""
    static: bool
    transactional: bool
    """Whether offsets are committed within transactions."""
    freezes: float
    """The probability that a member stands still before a step, for up to twice its session."""
    lives: tuple[float, float]
    """How long a member lives before it dies, leaves or is succeeded."""
    blows: int
    """How often the broker is struck."""


class Actor(Protocol):
    """One process that is a member."""

    @property
    def owner(self) -> "Owner":
        """As its world's books know it."""
        ...

    async def run(self) -> None:
        """Be one, until cancelled or shut out."""
        ...

    async def leave(self) -> None:
        """Go in order."""
        ...


A = TypeVar("A", bound=Actor)


@dataclass
class GroupOutcome:
    """What a world leaves."""

    seed: int
    trace: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    commits: int = 0
    refused: int = 0
    """Commits of members that were not members any more."""
    handed_over: int = 0
    generation: int = 0
    lives: int = 0


class BaseWorld(BrokerWorld, ABC, Generic[A]):
    """The world of one seed; kinds of worlds bring members and what must be true."""

    books: "OffsetBooks[Any]"
    ids: dict[str, bytes]
    """Of the topics, by name."""

    def __init__(self, seed: int, plan: Plan, random: Random, never_late: tuple[str, ...]) -> None:
        self.outcome = GroupOutcome(seed)
        super().__init__(random, self.outcome.trace, never_late)
        self.sizes = dict(plan.sizes)
        self.living: dict[int, A] = {}
        self.plan = plan
        self._born = 0

    @abstractmethod
    def member(self, slot: int, name: str, random: Random) -> A:
        """A new process for a place."""

    def settings(self) -> dict[str, str]:
        """The broker's settings."""
        return {"group.min.session.timeout.ms": "100"}

    def topics(self) -> dict[str, int]:
        """Topics with their numbers of partitions, those that the group does not read among them."""
        return self.sizes

    def wanted_topics(self) -> frozenset[str]:
        """The topics that must have owners."""
        return frozenset(self.sizes)

    def ways_to_go(self) -> tuple[str, ...]:
        """How a process ends; one that is succeeded goes on for a while beside the next one in its place."""
        return ("dies", "leaves", "is succeeded")

    async def more_events(self) -> None:
        """What else happens while things go wrong; nothing in some kinds of worlds."""
        await trio.lowlevel.checkpoint()

    async def compare(self, line: Line, committed: Mapping[TopicPartition, int]) -> None:
        """Hold what was written against what is committed; nothing was in some kinds of worlds."""
        await trio.lowlevel.checkpoint()

    def partitions(self, topics: frozenset[str]) -> list[TopicPartition]:
        """All of these topics, in order."""
        return [TopicPartition(name, at) for name in sorted(topics) for at in range(self.sizes[name])]

    # The course of the world

    async def run(self) -> GroupOutcome:
        """Everything, from the first start to the last look."""
        async with trio.open_nursery() as nursery:
            self.network = SimNetwork(nursery, self.weather, self.tell)
            own, flushes = self.fork(), self.fork()
            config = sim_config(self.settings())
            self.broker = SimBroker(nursery, self.network, own, config, lambda: flushes.uniform(0.0, 0.01))
            assert await self.broker.start()
            self.ids = await self.create_topics(self.line("admin"), self.topics())
            async with trio.open_nursery() as side:
                side.start_soon(self._keep_alive)
                async with trio.open_nursery() as blows:
                    for slot in range(self.plan.members):
                        side.start_soon(self._slot, slot, self.fork())
                    for _ in range(self.plan.blows):
                        blows.start_soon(self._strike, self.fork())
                    blows.start_soon(self.more_events)
                    await trio.sleep(self.plan.seconds)
                self.tell("from here on nothing goes wrong any more")
                self.weather.calm = True
                await self._rest()
                side.cancel_scope.cancel()
            await self._look_back()
            nursery.cancel_scope.cancel()
        self.close_lines()
        self.outcome.lives, self.outcome.generation = self.broker.lives, self.books.newest
        return self.outcome

    async def _slot(self, slot: int, random: Random) -> None:
        """One place for a member after the other; now and then two processes have the same place for a while."""
        async with trio.open_nursery() as old_ones:
            while True:
                await self._incarnation(slot, random, old_ones)

    async def _incarnation(self, slot: int, random: Random, old_ones: trio.Nursery) -> None:
        """One process, until it dies, leaves, or is succeeded while it lives on."""
        self._born += 1
        name = f"m{slot}.{self._born}"
        member = self.living[slot] = self.member(slot, name, random)
        ended, scope = trio.Event(), trio.CancelScope()

        async def live() -> None:
            with scope:
                await member.run()
            ended.set()

        old_ones.start_soon(live)
        with trio.move_on_after(random.uniform(*self.plan.lives)):
            await ended.wait()
            await trio.sleep(0.2)
            return
        if self.weather.calm:  # it stays to the end, or until it is fenced by the one before it
            await ended.wait()
            return
        how = random.choice(self.ways_to_go())
        self.tell(f"{name} {how}")
        if how == "is succeeded":
            old_ones.start_soon(self._end_later, scope, random.uniform(0.1, 2 * SESSION_S))
        else:
            scope.cancel()
            await ended.wait()
            if how == "leaves":
                await member.leave()
        await trio.sleep(random.choice((0.0, 0.1, SESSION_S + 1)))

    async def _end_later(self, scope: trio.CancelScope, seconds: float) -> None:
        """The process of before goes on for a while."""
        await trio.sleep(seconds)
        scope.cancel()

    # Blows

    async def _keep_alive(self) -> None:
        while True:
            await self.broker.ended()
            if self.broker.failure is not None:
                self.outcome.broken.append(f"the broker died: {self.broker.failure!r}")
            await trio.sleep(self.random.choice((0.0, 0.2, 1.0)))
            if await self.broker.start():
                self.tell("the broker is up")
            else:
                await trio.sleep(0.05)

    async def _strike(self, random: Random) -> None:
        """Kill the broker or cut its power, in the middle of a call to its disk."""
        await trio.sleep(random.uniform(0.5, self.plan.seconds))
        calls = random.randint(1, 30)
        power, fate = random.random() < 0.5, random.choice((everything, nothing, sampled, sampled))

        def strike() -> None:
            self.tell(f"{'power cut' if power else 'kill'} in life {self.broker.lives}")
            if power:
                self.broker.power_cut(fate)
            else:
                self.broker.kill()

        await self.strike_amid(strike, calls)

    # The end

    async def _rest(self) -> None:
        """When nothing goes wrong any more, everything is owned by somebody again."""
        began_at = trio.current_time()
        for _ in range(round(REST_S / LOOK_S)):
            if self.broker.node is not None and self._is_at_rest(began_at):
                return
            await trio.sleep(LOOK_S)
        owners = "; ".join(str(one.owner) for one in self.living.values())
        self.outcome.broken.append(f"the group does not come to rest: {owners}")

    def _is_at_rest(self, since: float) -> bool:
        """Everybody was in touch since then, in one epoch, and each partition that is wanted has one owner."""
        owners = [one.owner for one in self.living.values()]
        if any(owner.in_touch_at < since for owner in owners):
            return False
        owned = sorted(partition for owner in owners for partition in owner.owned)
        return owned == self.partitions(self.wanted_topics()) and len({owner.epoch for owner in owners}) == 1

    async def _look_back(self) -> None:
        """What is committed at the end, and after another crash; and what was written."""
        await self._look_at_offsets("live")
        await self.crash()
        await self._look_at_offsets("after a crash")

    async def _look_at_offsets(self, name: str) -> None:
        line = self.line(name)
        await trio.sleep(TXN_TIMEOUT_MS / 1000 + 2)  # what the dead have left open holds up whoever reads
        floor = dict(self.books.floor)
        with trio.move_on_after(REST_S):
            committed = await committed_offsets(line, GROUP, self.partitions(frozenset(self.sizes)))
            self.books.read(name, floor, committed)
            await self.compare(line, committed)
            return
        self.outcome.broken.append(f"{name}: nobody tells what is committed")
