"""Whole transactions through the service: rival producers, power cuts, late copies; a reader sees all or nothing."""

from dataclasses import dataclass, field

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.coordinator.txn.commands import Answer, EndTxn, resolve
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.examples import examples
from tests.unit.txn.kit import P0, P1, P2, TX, World

NONE = ErrorCode.NONE
TIMEOUT_MS = 3_000


@dataclass(frozen=True)
class Plan:
    """One transaction of one producer: where it writes, with which pauses, how it ends."""

    partitions: tuple[TopicPartition, ...]
    pauses: tuple[float, ...]
    commit: bool
    late_copy_after: float | None
    """The same EndTxn once more, on another connection, so many seconds later (KAFKA-17754)."""


pauses = st.sampled_from([0.0, 0.0, 0.05, 0.3, 1.0])
plans = st.builds(
    Plan,
    st.lists(st.sampled_from([P0, P1, P2]), min_size=1, max_size=3, unique=True).map(tuple),
    st.tuples(pauses, pauses, pauses, pauses),
    st.booleans(),
    st.one_of(st.none(), pauses),
)
scripts = st.lists(st.lists(plans, min_size=1, max_size=3), min_size=1, max_size=3)


@dataclass
class History:
    """What the producers know when all is over."""

    written: dict[str, list[TopicPartition]] = field(default_factory=dict)
    asked: dict[str, bool] = field(default_factory=dict)
    """By value, whether a commit of it (or an abort) was asked for at all."""
    outcome: dict[str, bool] = field(default_factory=dict)
    """By value, what EndTxn was heard to have done."""


class Lost(Exception):
    """The connection broke, or this producer was told to give up: it starts anew."""


class Producer:
    """A client that does as its plans say and comes back as a newcomer after every error."""

    def __init__(self, world: World, history: History, version: int, number: int, nursery: trio.Nursery) -> None:
        self.world, self.history, self.version, self.number, self.nursery = world, history, version, number, nursery
        self.identity = (-1, -1)
        self.values = 0

    async def run(self, script: list[Plan]) -> None:
        for plan in script:
            try:
                if self.identity[0] == -1:
                    await self.init()
                await self.transaction(plan)
            except Lost:
                self.identity = (-1, -1)

    async def init(self) -> None:
        self.identity = self.heard(await self.call("init_producer_id", TX, TIMEOUT_MS))

    async def call(self, method: str, *arguments: object, **options: object) -> Answer:
        """One request; a power cut breaks its connection."""
        with self.world.connection() as scope:
            answer = await resolve(getattr(self.world.service, method)(*arguments, **options))
        if scope.cancelled_caught:
            raise Lost
        return answer

    def heard(self, answer: Answer) -> tuple[int, int]:
        if answer.error is not NONE:
            raise Lost
        return answer.producer_id, answer.epoch

    async def transaction(self, plan: Plan) -> None:
        self.values += 1
        value = f"{self.number}-{self.values}"
        for partition, pause in zip(plan.partitions, plan.pauses, strict=False):
            await trio.sleep(pause)
            await self.write(partition, value)
        await trio.sleep(plan.pauses[-1])
        end = ("submit", TX, EndTxn(*self.identity, plan.commit, self.version), None)
        if plan.late_copy_after is not None and self.version == 2:
            self.nursery.start_soon(self.late_copy, end, plan.late_copy_after)
        self.history.asked[value] = plan.commit
        answer = await self.call(*end)
        self.identity = self.heard(answer)
        self.history.outcome[value] = plan.commit
        for partition in plan.partitions:
            visible = value in self.world.cluster.partitions[partition].committed()
            assert not visible or plan.commit

    async def write(self, partition: TopicPartition, value: str) -> None:
        producer_id, epoch = self.identity
        if self.version < 2:
            await self.ensured(self.call("add_partitions", TX, producer_id, epoch, [partition]))
        await self.ensured(self.call("ensure_partitions", TX, producer_id, epoch, [partition], add=self.version >= 2))
        if self.world.cluster.partitions[partition].append(producer_id, epoch, value) is not NONE:
            raise Lost
        self.history.written.setdefault(value, []).append(partition)

    async def ensured(self, asking: object) -> None:
        codes = await asking  # type: ignore[misc]
        if set(codes.values()) != {NONE}:
            raise Lost

    async def late_copy(self, end: tuple[object, ...], seconds: float) -> None:
        await trio.sleep(seconds)
        try:
            await self.call(*end)  # type: ignore[arg-type]
        except Lost:
            return


async def play(
    version: int, script: list[list[Plan]], cuts: list[float], log_delay: float, marker_delay: float, joins: bool
) -> tuple[World, History]:
    world = World(config=TxnConfig(transaction_version=version), log_delay=log_delay, marker_delay=marker_delay)
    world.cluster.joins = joins
    history = History()
    async with trio.open_nursery() as outer:
        await world.start(outer)
        async with trio.open_nursery() as producers:
            for number, plans_of_one in enumerate(script):
                producer = Producer(world, history, version, number, producers)
                producers.start_soon(producer.run, plans_of_one)
            for pause in cuts:
                await trio.sleep(pause)
                await world.crash(outer)
        await trio.sleep(TIMEOUT_MS / 1000 + 2)
        outer.cancel_scope.cancel()
    return world, history


@settings(max_examples=examples(100), deadline=None)
@given(
    version=st.sampled_from([0, 2]),
    script=scripts,
    cuts=st.lists(st.integers(1, 200).map(lambda hundredths: hundredths / 100), max_size=3),
    log_delay=st.sampled_from([0.0, 0.02, 0.3]),
    marker_delay=st.sampled_from([0.0, 0.03, 0.1, 1.0]),
    joins=st.booleans(),
)
def test_a_transaction_is_seen_whole_or_not_at_all(
    version: int, script: list[list[Plan]], cuts: list[float], log_delay: float, marker_delay: float, joins: bool
) -> None:
    clock = trio.testing.MockClock(autojump_threshold=0)
    world, history = trio.run(play, version, script, cuts, log_delay, marker_delay, joins, clock=clock)
    seen = {name: partition.committed() for name, partition in world.cluster.partitions.items()}
    for value, partitions in history.written.items():
        copies = [seen[partition].count(value) for partition in partitions]
        assert copies in ([0] * len(copies), [1] * len(copies)), f"{value} is torn: {copies}"
        if value in history.outcome:
            assert copies[0] == history.outcome[value], f"{value} is not what its producer was told"
    for name, partition in world.cluster.partitions.items():
        assert not partition.open, f"a transaction hangs on {name}"
        assert all(history.asked.get(value) for value in seen[name]), "only what its own producer wanted committed"
    counts = world.service.ids.counts
    assert counts["Ongoing"] == counts["PrepareCommit"] == counts["PrepareAbort"] == 0
