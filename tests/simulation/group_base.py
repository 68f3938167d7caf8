"""What all worlds of one consumer group share: a broker that is killed, places for members, and an end."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

import trio

from fencepost.testing.disk_nodes import everything, nothing, sampled
from fencepost.testing.sim_broker import SimBroker, sim_config
from fencepost.testing.sim_network import SimNetwork
from tests.simulation.broker_world import BrokerWorld

REST_S = 30.0
"""So long after the last fault the group may take to come to rest: ghosts of lost newcomers have to be waited out."""
LOOK_S = 0.2
SESSION_S, REBALANCE_S = 2.0, 3.0


class Plan(Protocol):
    """What every kind of world decides before it begins."""

    @property
    def seconds(self) -> float:
        """How long things go wrong."""
        ...

    @property
    def members(self) -> int:
        """How many places there are."""
        ...

    @property
    def blows(self) -> int:
        """How often the broker is struck."""
        ...

    @property
    def lives(self) -> tuple[float, float]:
        """How long a member lives before it dies, leaves or is succeeded."""
        ...


class Actor(Protocol):
    """One process that is a member."""

    async def run(self) -> None:
        """Be one, until cancelled or shut out."""
        ...

    async def leave(self) -> None:
        """Go in order."""
        ...


@dataclass
class GroupOutcome:
    """What a world leaves."""

    seed: int
    trace: list[str]
    broken: list[str] = field(default_factory=list)
    commits: int = 0
    refused: int = 0
    handed_over: int = 0
    generation: int = 0
    lives: int = 0


class BaseWorld(BrokerWorld, ABC):
    """The world of one seed; kinds of worlds bring members and what must be true."""

    def __init__(self, seed: int, plan: Plan, random: Random, never_late: tuple[str, ...]) -> None:
        self.outcome = GroupOutcome(seed, [])
        super().__init__(random, self.outcome.trace, never_late)
        self.course = plan
        self._born = 0

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """The broker's settings."""

    @abstractmethod
    def topics(self) -> dict[str, int]:
        """Topics with their numbers of partitions."""

    @abstractmethod
    def member(self, slot: int, name: str, random: Random) -> Actor:
        """A new process for a place."""

    @abstractmethod
    def owners(self) -> list[str]:
        """Who has what, for people."""

    @abstractmethod
    def at_rest(self, since: float) -> bool:
        """Whether everything is owned, and everybody was in touch since then."""

    @abstractmethod
    async def look_back(self) -> None:
        """What is committed at the end."""

    @abstractmethod
    def close_books(self) -> None:
        """Put what was found into the outcome."""

    def ways_to_go(self) -> tuple[str, ...]:
        """How a process ends; one that is succeeded goes on for a while beside the next one in its place."""
        return ("dies", "leaves", "is succeeded")

    async def more_events(self) -> None:
        """What else happens while things go wrong; nothing in some kinds of worlds."""
        await trio.lowlevel.checkpoint()

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
                    for slot in range(self.course.members):
                        side.start_soon(self._slot, slot, self.fork())
                    for _ in range(self.course.blows):
                        blows.start_soon(self._strike, self.fork())
                    blows.start_soon(self.more_events)
                    await trio.sleep(self.course.seconds)
                self.tell("from here on nothing goes wrong any more")
                self.weather.calm = True
                await self._rest()
                side.cancel_scope.cancel()
            await self.look_back()
            nursery.cancel_scope.cancel()
        self.close_lines()
        self.outcome.lives = self.broker.lives
        self.close_books()
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
        member = self.member(slot, name, random)
        ended, scope = trio.Event(), trio.CancelScope()

        async def live() -> None:
            with scope:
                await member.run()
            ended.set()

        old_ones.start_soon(live)
        with trio.move_on_after(random.uniform(*self.course.lives)):
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
        await trio.sleep(random.uniform(0.5, self.course.seconds))
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
            if self.broker.node is not None and self.at_rest(began_at):
                return
            await trio.sleep(LOOK_S)
        self.outcome.broken.append(f"the group does not come to rest: {'; '.join(self.owners())}")
