"""What all worlds of one consumer group share: a broker that is killed, places for members, and an end."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

import trio

from fencepost.testing.disk_nodes import everything, nothing, sampled
from fencepost.testing.sim_broker import SimBroker, sim_config
from fencepost.testing.sim_network import SimNetwork
from tests.simulation.lines import Line, create_topics
from tests.simulation.weather import SeededWeather

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


class BaseWorld(ABC):
    """The world of one seed; kinds of worlds bring members and what must be true."""

    def __init__(self, seed: int, plan: Plan, random: Random, never_late: tuple[str, ...]) -> None:
        self.random = random
        self.course = plan
        self.weather = SeededWeather(Random(random.getrandbits(64)), never_late)
        self.outcome = GroupOutcome(seed, [])
        self.calm = False
        self._born = 0
        self._lines: list[Line] = []

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

    def tell(self, event: str) -> None:
        """One line of the trace."""
        self.outcome.trace.append(f"{trio.current_time():9.4f} {event}")

    def line(self, client_id: str) -> Line:
        """A client's line to the broker."""
        self._lines.append(Line(self.network, client_id))
        return self._lines[-1]

    # The course of the world

    async def run(self) -> GroupOutcome:
        """Everything, from the first start to the last look."""
        async with trio.open_nursery() as nursery:
            self.network = SimNetwork(nursery, self.weather, self.tell)
            randoms = [Random(self.random.getrandbits(64)) for _ in range(2)]
            self.broker = SimBroker(
                nursery, self.network, randoms[0], sim_config(self.settings()), lambda: randoms[1].uniform(0.0, 0.01)
            )
            assert await self.broker.start()
            self.ids = await self._create_topics()
            async with trio.open_nursery() as side:
                side.start_soon(self._keep_alive)
                async with trio.open_nursery() as blows:
                    for slot in range(self.course.members):
                        side.start_soon(self._slot, slot, Random(self.random.getrandbits(64)))
                    for _ in range(self.course.blows):
                        blows.start_soon(self._strike, Random(self.random.getrandbits(64)))
                    blows.start_soon(self.more_events)
                    await trio.sleep(self.course.seconds)
                self.tell("from here on nothing goes wrong any more")
                self.calm = self.weather.calm = True
                await self._rest()
                side.cancel_scope.cancel()
            await self.look_back()
            nursery.cancel_scope.cancel()
        for line in self._lines:
            line.close()
        self.outcome.lives = self.broker.lives
        self.close_books()
        return self.outcome

    async def _create_topics(self) -> dict[str, bytes]:
        """The ids of the topics by name."""
        self.weather.calm = True
        ids = await create_topics(self.line("admin"), self.topics())
        self.weather.calm = False
        return ids

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
        if self.calm:  # it stays to the end, or until it is fenced by the one before it
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
        disk, left, reached = self.broker.disk, [random.randint(1, 30)], trio.Event()
        power, fate = random.random() < 0.5, random.choice((everything, nothing, sampled, sampled))

        def strike() -> None:
            if self.broker.disk is not disk:
                return
            self.tell(f"{'power cut' if power else 'kill'} in life {self.broker.lives}")
            if power:
                self.broker.power_cut(fate)
            else:
                self.broker.kill()

        def before_io(kind: str, path: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                disk.before_io = None
                strike()
                reached.set()

        disk.before_io = before_io
        with trio.move_on_after(2.0):
            await reached.wait()
        disk.before_io = None
        strike()

    # The end

    async def _rest(self) -> None:
        """When nothing goes wrong any more, everything is owned by somebody again."""
        began_at = trio.current_time()
        for _ in range(round(REST_S / LOOK_S)):
            if self.broker.node is not None and self.at_rest(began_at):
                return
            await trio.sleep(LOOK_S)
        self.outcome.broken.append(f"the group does not come to rest: {'; '.join(self.owners())}")
