"""Worlds of one group whose members speak the consumer protocol (KIP-848), or both, each process another one."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import trio

from fencepost.client.core.consumer_member import DesiredSubscription
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.topics import TopicPartition
from tests.simulation.group_base import BEAT_S, LOOK_S, SESSION_S, BaseWorld, Plan
from tests.simulation.group_books import Books, Reader
from tests.simulation.group_machines import ClassicMachine, ConsumerMachine, Machine
from tests.simulation.group_process import OUT
from tests.simulation.lines import Line, Lost
from tests.simulation.sim_readers import read_all

NEVER_LATE = ("OffsetCommit", "SyncGroup", "JoinGroup", "ConsumerGroupHeartbeat")
"""An older copy of a heartbeat says what its member had then, and so that it has given up what it got since: no broker
can know better within one epoch. The others are told of in `group_world`."""


@dataclass(frozen=True)
class ProtocolPlan(Plan):
    """What is decided of a world with the consumer protocol."""

    classic: float
    """How many of the processes speak the classic protocol."""
    offered: tuple[str, ...]
    """The assignors of those."""
    interval_ms: int
    """How long a target assignment stands (KIP-1263)."""
    grows: int
    """How often a topic gets one partition more."""
    wishes: bool
    """Whether members want different topics, and change their minds."""

    @classmethod
    def of(cls, random: Random, mixed: bool) -> "ProtocolPlan":
        """The plan of a seed. Where classic members come, all want the same, for they look for new partitions late."""
        static = random.random() < 0.4
        # A static member of a cooperative group that dies between its two rounds leaves a group that nobody calls
        # together again, Kafka's as ours; an operator helps there (`group_members` plays one).
        offered = "range" if static else random.choice(("range", "cooperative-sticky", "cooperative-sticky"))
        return cls(
            seconds=random.uniform(6.0, 20.0),
            sizes={"in": random.randint(1, 5), "more": random.randint(1, 3)},
            members=random.randint(2, 4) if mixed else random.randint(1, 4),
            classic=random.choice((0.3, 0.6, 0.9)) if mixed else 0.0,
            offered=(offered,),
            static=static,
            transactional=random.random() < 0.5,
            freezes=random.choice((0.0, 0.02, 0.06)),
            lives=random.choice(((2.0, 8.0), (5.0, 30.0), (0.3, 3.0))),
            blows=random.choice((0, 1, 2, 4)),
            interval_ms=random.choice((0, 0, 500)),
            grows=0 if mixed else random.choice((0, 0, 1, 2)),
            wishes=not mixed and random.random() < 0.5,
        )


class ProtocolWorld(BaseWorld[Machine]):
    """The world of one seed."""

    plan: ProtocolPlan
    books: Books

    def __init__(self, seed: int, mixed: bool) -> None:
        random = Random(seed)
        super().__init__(seed, ProtocolPlan.of(random, mixed), random, NEVER_LATE)
        self.books = Books(self.outcome, self.tell)

    def settings(self) -> dict[str, str]:
        return super().settings() | {
            "group.consumer.session.timeout.ms": str(round(SESSION_S * 1000)),
            "group.consumer.min.session.timeout.ms": "100",
            "group.consumer.heartbeat.interval.ms": str(round(BEAT_S * 1000)),
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.assignment.interval.ms": str(self.plan.interval_ms),
        }

    def topics(self) -> dict[str, int]:
        return {**self.sizes, OUT[0]: 1}

    # Members

    def member(self, slot: int, name: str, random: Random) -> Machine:
        classic = random.random() < self.plan.classic
        owner = Reader(f"{name}{'c' if classic else ''}", f"place-{slot}" if self.plan.static else None, classic)
        own = Random(random.getrandbits(64))
        if classic:
            return ClassicMachine(self, owner, own, self.plan.offered)
        version = random.randint(0, 1)
        return ConsumerMachine(self, owner, own, self.some_wish(random, version), version)

    def some_wish(self, random: Random, version: int) -> DesiredSubscription:
        """What a member of the consumer protocol subscribes to; expressions only where the version has them."""
        assignor = random.choice((None, None, "uniform", "range"))
        by_expression = version > 0 and random.random() < 0.3
        if not self.plan.wishes:
            return (
                DesiredSubscription((), "in|mo.*", assignor)
                if by_expression
                else DesiredSubscription(tuple(self.sizes), None, assignor)
            )
        if by_expression:
            return DesiredSubscription(
                random.choice(((), ("in",))), random.choice(("in|mo.*", "m[aeiou]re", "i.*")), assignor
            )
        return DesiredSubscription(random.choice((("in",), ("more",), ("in", "more"))), None, assignor)

    def matched(self, desired: DesiredSubscription) -> frozenset[str]:
        """The topics that a member wants."""
        pattern = desired.pattern
        by_pattern = {name for name in self.sizes if pattern is not None and re.fullmatch(pattern, name)}
        return by_pattern.union(name for name in desired.topics)  # type: ignore[return-value]

    def ways_to_go(self) -> tuple[str, ...]:
        """Two processes of different protocols put each other out of a static place without end.

        Nobody's epoch changes by that, so the one that comes back under its old member id may commit what it had read
        before the other one was there: Kafka and this broker cannot know better.
        """
        ways = super().ways_to_go()
        return ways[:2] if self.plan.static and self.plan.classic else ways

    # What else happens

    async def more_events(self) -> None:
        """Topics grow, members want other topics."""
        random, line = self.fork(), self.line("admin")
        growths = [(random.uniform(0.5, self.plan.seconds), True) for _ in range(self.plan.grows)]
        changes = [(random.uniform(0.5, self.plan.seconds), False) for _ in range(4 if self.plan.wishes else 0)]
        for at, grows in sorted(growths + changes):
            await trio.sleep_until(max(at, trio.current_time()))
            if grows:
                await self._grow(line, random.choice(list(self.sizes)))
            elif self.living:
                random.choice(list(self.living.values())).change_wish()

    async def _grow(self, line: Line, name: str) -> None:
        """One partition more for a topic, whatever it takes."""
        topic = CreatePartitionsTopic(name=name, count=self.sizes[name] + 1, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=False)
        code = None
        while code not in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):  # it has as many already: an answer was lost
            try:
                code = ErrorCode((await line.ask(3, request)).results[0].error_code)
            except Lost:
                await trio.sleep(LOOK_S)
        self.sizes[name] += 1
        self.tell(f"{name} has {self.sizes[name]} partitions")

    # The end

    def wanted_topics(self) -> frozenset[str]:
        return frozenset[str]().union(*(machine.topics for machine in self.living.values()))

    async def compare(self, line: Line, committed: Mapping[TopicPartition, int]) -> None:
        if self.plan.transactional:
            logs, _ = await read_all(line, [OUT], committed=True)
            self.books.compare([value for _, value in logs[OUT]], committed)
