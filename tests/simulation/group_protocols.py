"""Worlds of one group whose members speak the consumer protocol (KIP-848), or both, each process another one."""

import re
from dataclasses import dataclass
from random import Random

import trio

from fencepost.client.core.consumer_member import Wish
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.topics import TopicPartition
from fencepost.testing.determinism import run_seeded
from tests.simulation.group_base import LOOK_S, REBALANCE_S, REST_S, SESSION_S, BaseWorld, GroupOutcome
from tests.simulation.group_books import Books, Owner
from tests.simulation.group_machines import ClassicMachine, ConsumerMachine, Machine
from tests.simulation.group_work import BEAT_S, GROUP, OUT, TXN_TIMEOUT_MS
from tests.simulation.lines import Lost
from tests.simulation.sim_readers import committed_offsets, read_all

NEVER_LATE = ("OffsetCommit", "SyncGroup", "JoinGroup", "ConsumerGroupHeartbeat")
"""An older copy of a heartbeat says what its member had then, and so that it has given up what it got since: no broker
can know better within one epoch. The others are told of in `group_world`."""


@dataclass(frozen=True)
class ProtocolPlan:
    """Everything about a world that is decided before it begins."""

    seconds: float
    sizes: dict[str, int]
    """Topics with their numbers of partitions."""
    members: int
    classic: float
    """How many of the processes speak the classic protocol."""
    offered: tuple[str, ...]
    """The assignors of those."""
    static: bool
    transactional: bool
    freezes: float
    lives: tuple[float, float]
    blows: int
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


class ProtocolWorld(BaseWorld):
    """The world of one seed."""

    def __init__(self, seed: int, mixed: bool) -> None:
        random = Random(seed)
        self.plan = ProtocolPlan.of(random, mixed)
        super().__init__(seed, self.plan, random, NEVER_LATE)
        self.sizes = dict(self.plan.sizes)
        self.books = Books(min(SESSION_S, REBALANCE_S), self.tell)
        self.living: dict[int, Machine] = {}

    def settings(self) -> dict[str, str]:
        return {
            "group.min.session.timeout.ms": "100",
            "group.consumer.session.timeout.ms": str(round(SESSION_S * 1000)),
            "group.consumer.min.session.timeout.ms": "100",
            "group.consumer.heartbeat.interval.ms": str(round(BEAT_S * 1000)),
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.assignment.interval.ms": str(self.plan.interval_ms),
        }

    def topics(self) -> dict[str, int]:
        return {**self.plan.sizes, OUT[0]: 1}

    # Members

    def member(self, slot: int, name: str, random: Random) -> Machine:
        classic = random.random() < self.plan.classic
        owner = Owner(f"{name}{'c' if classic else ''}", f"place-{slot}" if self.plan.static else None, classic)
        own = Random(random.getrandbits(64))
        if classic:
            machine: Machine = ClassicMachine(self, owner, own, self.plan.offered)
        else:
            version = random.randint(0, 1)
            machine = ConsumerMachine(self, owner, own, self.some_wish(random, version), version)
        self.living[slot] = machine
        return machine

    def some_wish(self, random: Random, version: int) -> Wish:
        """What a member of the consumer protocol subscribes to; expressions only where the version has them."""
        assignor = random.choice((None, None, "uniform", "range"))
        by_expression = version > 0 and random.random() < 0.3
        if not self.plan.wishes:
            return Wish((), "in|mo.*", assignor) if by_expression else Wish(tuple(self.sizes), None, assignor)
        if by_expression:
            return Wish(random.choice(((), ("in",))), random.choice(("in|mo.*", "m[aeiou]re", "i.*")), assignor)
        return Wish(random.choice((("in",), ("more",), ("in", "more"))), None, assignor)

    def matched(self, wish: Wish) -> frozenset[str]:
        """The topics that a member wants."""
        pattern = wish.pattern
        by_pattern = {name for name in self.sizes if pattern is not None and re.fullmatch(pattern, name)}
        return by_pattern.union(name for name in wish.topics)  # type: ignore[return-value]

    def ways_to_go(self) -> tuple[str, ...]:
        """Two processes of different protocols put each other out of a static place without end.

        Nobody's epoch changes by that, so the one that comes back under its old member id may commit what it had read
        before the other one was there: Kafka and this broker can not know better.
        """
        ways = super().ways_to_go()
        return ways[:2] if self.plan.static and self.plan.classic else ways

    # What else happens

    async def more_events(self) -> None:
        """Topics grow, members want other topics."""
        random = self.fork()
        line = self.line("admin")
        times = sorted(random.uniform(0.5, self.plan.seconds) for _ in range(self.plan.grows))
        changes = sorted(random.uniform(0.5, self.plan.seconds) for _ in range(4 if self.plan.wishes else 0))
        for at, grows in sorted([(at, True) for at in times] + [(at, False) for at in changes]):
            await trio.sleep_until(max(at, trio.current_time()))
            if not grows:
                if self.living:
                    random.choice(list(self.living.values())).change_wish()
                continue
            name = random.choice(list(self.sizes))
            topic = CreatePartitionsTopic(name=name, count=self.sizes[name] + 1, assignments=None)
            request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=False)
            grown = False
            while not grown:
                try:
                    answer = await line.ask(3, request)
                except Lost:
                    await trio.sleep(LOOK_S)
                    continue
                # INVALID_PARTITIONS: it has as many already, for an answer was lost.
                done = (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)
                grown = ErrorCode(answer.results[0].error_code) in done
            self.sizes[name] += 1
            self.tell(f"{name} has {self.sizes[name]} partitions")

    # The end

    def owners(self) -> list[str]:
        return [
            f"{one.owner.name} (epoch {one.owner.epoch}): {', '.join(str(each) for each in sorted(one.owner.owned))}"
            for one in self.living.values()
        ]

    def at_rest(self, since: float) -> bool:
        """In one epoch, and each partition that anybody wants has one owner."""
        living = list(self.living.values())
        if any(machine.owner.in_touch_at < since for machine in living):
            return False
        wanted = sorted(
            TopicPartition(name, at)
            for name in frozenset[str]().union(*(machine.topics for machine in living))
            for at in range(self.sizes[name])
        )
        owned = sorted(partition for machine in living for partition in machine.owner.owned)
        return owned == wanted and len({machine.owner.epoch for machine in living}) == 1

    async def look_back(self) -> None:
        """What is committed at the end, and after another crash; and what was written."""
        partitions = [TopicPartition(name, at) for name, count in self.sizes.items() for at in range(count)]
        for name in ("live", "after a crash"):
            line = self.line(name)
            await trio.sleep(TXN_TIMEOUT_MS / 1000 + 2)  # what the dead have left open holds up whoever reads
            floor = dict(self.books.floor)
            found: dict[TopicPartition, int] | None = None
            with trio.move_on_after(REST_S):
                told = await committed_offsets(line, GROUP, partitions)
                found = {TopicPartition(*place): offset for place, offset in told.items()}
            if found is None:
                self.outcome.broken.append(f"{name}: nobody tells the group's offsets")
                continue
            self.books.read(name, floor, found)
            if self.plan.transactional:
                logs, _ = await read_all(line, [OUT], committed=True)
                self.books.compare([value for _, value in logs[OUT]], found)
            if name == "live":
                await self.crash()

    def close_books(self) -> None:
        books, outcome = self.books, self.outcome
        outcome.broken += books.broken
        outcome.commits, outcome.refused, outcome.handed_over = books.commits, books.refused, books.handed_over
        outcome.generation = books.newest


def run_protocol_world(seed: int, mixed: bool) -> GroupOutcome:
    """The world of a seed: of the consumer protocol alone, or of both."""
    return run_seeded(seed, ProtocolWorld(seed, mixed).run)
