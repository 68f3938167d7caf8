"""Lose the power, or the process, while share states are written, pruned and deleted; start, and compare (KIP-932)."""

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

import pytest
import trio
from trio.testing import MockClock

from fencepost.broker import periodic
from fencepost.broker.node import Node
from fencepost.coordinator.metadata.commands import NewTopic, TopicRef
from fencepost.coordinator.share.values import InitialState, ShareKey, StateBatch, StateUpdate
from fencepost.protocol.topics import SHARE_STATE_TOPIC
from tests.kit.sim_broker import SimBroker, sim_config
from tests.kit.sim_disk import SimDisk
from tests.kit.sim_network import ClearWeather, SimNetwork
from tests.simulation.power_cut import CHANGES, KILL, PLAIN_FATES, ended

STEPS, CRASHES = 25, 12
FATES = (KILL, *PLAIN_FATES, "sampled", "sampled")
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "share.coordinator.cold.partition.snapshot.interval.ms": "1000",
}
State = tuple[int, int, tuple[StateBatch, ...]]
States = Mapping[ShareKey, State]


class Frozen(NamedTuple):
    """The disk just before a call, and the states that may show after a crash there."""

    io: int
    step: str
    disk: SimDisk
    allowed: list[States]


def states(node: Node) -> dict[ShareKey, State]:
    return {
        key: (share.state_epoch, share.start_offset, share.batches)
        for shard in node.share_states.runtime.shards()
        for key, share in shard.state.shares.items()
    }


def a_broker(nursery: trio.Nursery, disk: SimDisk | None = None) -> SimBroker:
    broker = SimBroker(nursery, SimNetwork(nursery, ClearWeather()), Random(1), sim_config(SETTINGS))
    broker.disk = disk or broker.disk
    return broker


async def step(node: Node, kind: str, random: Random) -> None:
    shares, topics = node.share_states, node.metadata.image.topics_by_name
    if "t" not in topics:
        await node.metadata.create_topics([NewTopic("t", 3)])
    topic_id = node.metadata.topic_id("t") or b""
    keys = [ShareKey(group, topic_id, number) for group in "gh" for number in range(3)]
    some = random.sample(keys, 2)
    if kind == "begin":
        await shares.initialize({key: InitialState(random.randrange(3), 10) for key in some})
    elif kind == "write":
        first = random.randrange(10, 60)
        batch = StateBatch(first, first + random.randrange(5), 2, random.randrange(1, 4))
        await shares.write([(key, StateUpdate(9, 9, first - 10, 1, [batch])) for key in some])
    elif kind == "delete":
        await shares.delete(some[:1])
    elif kind == "prune":
        await trio.sleep(2)
        await periodic.prune_share_states(node)
    else:
        await node.metadata.delete_topics([TopicRef("t")])


async def history(seed: int) -> list[Frozen]:
    """One life of a broker: the disks along it, and what a start on each must show."""
    random, frozen, waiting, shown, io = Random(seed), list[Frozen](), list[Frozen](), list[States](), 0
    name = "start"

    def freeze(kind: str, path: str) -> None:
        nonlocal io
        io += 1
        if kind in CHANGES:
            waiting.append(Frozen(io, f"{name}, {kind} {path}", broker.disk.kill(), list(shown)))

    async with trio.open_nursery() as nursery:
        broker = a_broker(nursery)
        assert await broker.start(), broker.failure
        node = broker.node
        assert node is not None
        broker.disk.before_io = freeze
        for number in range(STEPS):
            kind = random.choice(("begin", "begin", "write", "write", "write", "delete", "prune", "prune", "topic"))
            name, shown = f"step {number} {kind}", [states(node)]
            await step(node, kind, random)
            await trio.sleep(1)  # what is written and not waited for, the tombstones of a deleted topic, is durable
            frozen += [one._replace(allowed=[*one.allowed, states(node)]) for one in waiting]
            waiting.clear()
        assert any(log.log_start_offset for log in node.logs.logs() if log.tp.topic == SHARE_STATE_TOPIC)
        nursery.cancel_scope.cancel()
    return frozen


async def check(frozen: Frozen, fate: str, seed: int) -> None:
    """A crash there: each share partition has its state from before the step or from after it."""
    async with trio.open_nursery() as nursery:
        broker = a_broker(nursery, ended(frozen.disk, fate, seed))
        assert await broker.start(), broker.failure
        assert broker.node is not None
        found = states(broker.node)
        for key in {*found, *(key for one in frozen.allowed for key in one)}:
            due = [one.get(key) for one in frozen.allowed]
            assert found.get(key) in due, f"{key} has {found.get(key)}, where one of these was due: {due}"
        assert all(not shard.refusal for shard in broker.node.share_states.runtime.shards())
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_anywhere_leaves_each_share_state_from_before_or_after_the_change(seed: int) -> None:
    """With snapshots, pruning, and topics that are deleted: none comes back, and none is lost."""

    async def run() -> None:
        random = Random(seed)
        for one in random.sample(await history(seed), CRASHES):
            fate = random.choice(FATES)
            try:
                await check(one, fate, one.io)
            except Exception as error:
                raise AssertionError(f"{error!r}\nseed {seed}, io {one.io}, {fate}, in {one.step}") from error

    trio.run(run, clock=MockClock(autojump_threshold=0))
