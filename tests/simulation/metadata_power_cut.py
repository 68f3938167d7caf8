"""Cut the power, or kill the process, while metadata is written, kept in snapshots and let go of; start, and compare.

    python -m tests.simulation.metadata_power_cut [--seeds 20] [--first 0] [--cuts 40]
        [--seed 4 --io 731 --fate sampled]

Each seed is a history of one broker over a simulated disk: topics made, grown, set, written to and deleted, plans over
several appends, snapshots, orderly ends and starts; nothing is kept of the log that a snapshot stands for. At every
call to the disk that changes something, those of starts included, the power may go. The next start must show the
metadata from before the change that was under way or from after it, and have no file of a topic that is gone; and what
it shows is safe.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import trio
from trio.testing import MockClock

from fencepost.broker.log.partition import AppendOrigin
from fencepost.broker.log.storage.checkpoints import NO_TOPIC_ID
from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits, MorePartitions, NewTopic, TopicRef
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.metadata.ports import Bounds
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.topics import TopicPartition
from tests.kit.disk_nodes import nothing
from tests.kit.sim_broker import SimBroker, sim_config
from tests.kit.sim_disk import SimDisk
from tests.kit.sim_network import ClearWeather, SimNetwork
from tests.simulation.power_cut import CHANGES, KILL, PLAIN_FATES, ended

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fencepost.broker.node import Node

NAMES = ("a", "b", "c", "d")
STEPS = 14
FATES = (KILL, *PLAIN_FATES, "sampled", "sampled", "sampled")
SETTINGS = {"metadata.max.retention.bytes": "1", "offsets.topic.num.partitions": "1"}
SMALL = Bounds(append_records_max=4)


class Frozen(NamedTuple):
    """The disk just before a call, and the metadata that may show after a crash there."""

    io: int
    step: str
    disk: SimDisk
    allowed: list[MetadataImage]


class Case(NamedTuple):
    """One crash."""

    seed: int
    io: int
    fate: str


def plain(image: MetadataImage) -> MetadataImage:
    """The image without what each start adds to it."""
    return replace(image, offset=0, brokers={})


class Play:
    """One history, the disks along it, and what each start on one of them must show."""

    def __init__(self, seed: int) -> None:
        self.frozen: list[Frozen] = []
        self._random = Random(seed)
        self._shown: list[MetadataImage] = []
        self._step = "start"
        self._io = 0

    async def run(self, only: int | None) -> None:
        """Play it, and freeze the disk before that call, or before every one that changes something."""
        waiting: list[Frozen] = []

        def freeze(kind: str, path: str) -> None:
            self._io += 1
            if kind in CHANGES and only in (None, self._io):
                waiting.append(Frozen(self._io, f"{self._step}, {kind} {path}", broker.disk.kill(), list(self._shown)))

        async with trio.open_nursery() as nursery:
            broker = a_broker(nursery, self._random)
            broker.disk.before_io = freeze
            assert await broker.start(), broker.failure
            self.frozen, waiting[:] = waiting[:], []  # a first start that was cut off may begin again, with other ids
            for number in range(STEPS):
                assert broker.node is not None
                broker.node.metadata.journal.bounds = SMALL
                self._shown = [plain(broker.node.metadata.image)]
                kind = self._random.choice(KINDS)
                self._step = f"step {number} {kind}"
                await self._do(kind, broker)
                assert broker.node is not None
                after = plain(broker.node.metadata.image)
                self.frozen += [one._replace(allowed=[*one.allowed, after]) for one in waiting]
                waiting.clear()
            nursery.cancel_scope.cancel()

    async def _do(self, kind: str, broker: SimBroker) -> None:
        node, name, count = broker.node, self._random.choice(NAMES), self._random.randint(1, 5)
        assert node is not None
        metadata = node.metadata
        if kind == "create":
            await metadata.create_topics([NewTopic(name, count, configs={"retention.ms": "5"})])
        elif kind == "delete":
            await metadata.delete_topics([TopicRef(name)])
        elif kind == "grow":
            await metadata.create_partitions([MorePartitions(name, count + 3)])
        elif kind == "set":
            await metadata.alter_configs([ConfigEdits(2, name, (ConfigEdit("retention.ms", 0, str(count)),))])
        elif kind == "plan":
            edits = [TopicRef(one) for one in NAMES if one in metadata.image.topics_by_name]
            await metadata.apply([*edits, *(NewTopic(one, count) for one in self._random.sample(NAMES, 2))])
        elif kind == "write":
            await write(node, name)
        elif kind == "snapshot":
            await metadata.take_snapshot()
        else:
            await trio.sleep(10)  # checkpoints are taken; and no flush is under way, which only here could be given up
            await broker.stop()
            assert await broker.start(), broker.failure


KINDS = ("create", "create", "delete", "grow", "set", "plan", "write", "write", "snapshot", "snapshot", "restart")


def a_broker(nursery: trio.Nursery, random: Random, disk: SimDisk | None = None) -> SimBroker:
    """A broker that nobody talks to over the network."""
    broker = SimBroker(nursery, SimNetwork(nursery, ClearWeather()), random, sim_config(SETTINGS))
    if disk is not None:
        broker.disk = disk
    return broker


async def write(node: "Node", name: str) -> None:
    """A record into the first partition of a topic, if there is that topic."""
    log = node.partition(TopicPartition(name, 0))
    if log is not None:
        now = node.clock.now_ms()
        info = log.append(build_batch([(now, b"k", b"v", ())]), AppendOrigin.CLIENT, now)
        assert info.error is ErrorCode.NONE
        await node.flusher.flush(log)


@asynccontextmanager
async def living(disk: SimDisk) -> "AsyncIterator[SimBroker]":
    """A broker that was started on a disk."""
    async with trio.open_nursery() as nursery:
        broker = a_broker(nursery, Random("another life"), disk)
        assert await broker.start(), broker.failure
        yield broker
        nursery.cancel_scope.cancel()


async def check(frozen: Frozen, case: Case) -> None:
    """Crash there, start, and compare; then go on, lose the power once more, and compare again."""
    async with living(ended(frozen.disk, case.fate, case.seed * 1000 + case.io)) as broker:
        shown = compare(broker, frozen.allowed)
        at_once = broker.disk.power_cut(nothing)
        await broker.node.metadata.create_topics([NewTopic("later", 2)])
        assert await broker.node.metadata.take_snapshot()
        for name in NAMES:
            await write(broker.node, name)
        expected = plain(broker.node.metadata.image)
        assert "later" in expected.topics_by_name
        later = broker.disk.power_cut(nothing)
    for again, wanted in ((at_once, shown), (later, expected)):
        async with living(again) as broker:
            compare(broker, [wanted])


def compare(broker: SimBroker, allowed: Sequence[MetadataImage]) -> MetadataImage:
    """What it shows, which must be one of these; and its files are those of topics that there are."""
    node = broker.node
    assert node is not None
    found = plain(node.metadata.image)
    if allowed and found not in allowed:
        raise AssertionError(f"{found} shows, where one of these was due: {allowed}")
    for tp in sorted(node.logs.partitions()):
        if tp.topic not in NAMES:
            continue
        topic = node.metadata.image.topics_by_name.get(tp.topic)
        if topic is not None:
            assert node.partition(tp) is not None, f"{tp} is offline"
        owner = node.logs.topic_id_on_disk(tp)
        assert owner in (NO_TOPIC_ID, topic and topic.topic_id), f"{tp} has the files of a topic that is gone"
    assert not node.logs.quarantined(TopicPartition("__cluster_metadata", 0)), "taken for damage"
    return found


def play(seed: int, cuts: int, only: Case | None = None) -> int:
    """Play one history with so many crashes, or the one; returns how many there were.

    Raises AssertionError, which says how to see it again.
    """

    async def run() -> int:
        story = Play(seed)
        await story.run(None if only is None else only.io)
        random, done = Random(seed), 0
        chosen = story.frozen if only else random.sample(story.frozen, min(cuts, len(story.frozen)))
        for frozen in chosen:
            case = only or Case(seed, frozen.io, random.choice(FATES))
            try:
                await check(frozen, case)
            except Exception as error:
                again = f"--seed {case.seed} --io {case.io} --fate {case.fate}"
                raise AssertionError(
                    f"{error!r}\nin {frozen.step}\nagain: python -m tests.simulation.metadata_power_cut {again}"
                ) from error
            done += 1
        return done

    return trio.run(run, clock=MockClock(autojump_threshold=0))


def main() -> int:
    """Many histories, or the one case that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="how many histories")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cuts", type=int, default=40, help="crashes in each")
    parser.add_argument("--keep-going", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--io", type=int)
    parser.add_argument("--fate", choices=sorted(set(FATES)))
    arguments = parser.parse_args()
    if arguments.seed is not None:
        print(play(arguments.seed, 1, Case(arguments.seed, arguments.io, arguments.fate)), "crash, all well")
        return 0
    logging.disable(logging.CRITICAL)
    total = failed = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            total += play(seed, arguments.cuts)
        except AssertionError as error:
            if not arguments.keep_going:
                raise
            failed += 1
            print(error, flush=True)
    print(f"{total} crashes in {arguments.seeds} histories; {failed} histories went wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
