"""Partitions that move between the cores of a world while everything else goes on (decision 0088)."""

from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio

from fencepost.broker.cores.handed_logs import MOVED_OFFSETS
from fencepost.broker.log.storage.layout import MOVING, partition_of
from fencepost.broker.metadata.log import METADATA_TOPIC
from fencepost.protocol.messages.api45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from fencepost.protocol.topics import TopicPartition
from tests.kit.determinism import nap
from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import SimDirectory
from tests.kit.sim_cores import FIRST_NODE_ID, SimCore, core_path
from tests.simulation.cores_weather import Event
from tests.simulation.lines import Lost

if TYPE_CHECKING:
    from tests.simulation.many_cores import CoresWorld

LOOK_SECONDS = 0.02
AMID_SECONDS = 4.0
"""So long a blow waits for a move that it can strike; then it comes without one."""
END_SECONDS = 40.0
"""Longer than all moves may take when nothing goes wrong any more."""


class Moves:
    """Asks for moves, strikes amid them, and looks at what they leave."""

    def __init__(self, world: "CoresWorld", random: Random) -> None:
        self._world = world
        self._random = random
        self._pause_seconds = random.choice((0.05, 0.2, 0.6))
        self._cancels = random.choice((0.0, 0.1, 0.3))
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        """Which core led a partition in a leader epoch."""

    async def run(self) -> None:
        """Ask for moves until all is calm."""
        line = self._world.line("mover")
        while not self._world.weather.calm:
            await nap(self._random.uniform(0, 2 * self._pause_seconds))
            wanted = [(tp, self._target()) for tp in self._some()]
            topics = [
                ReassignableTopic(
                    name=tp.topic, partitions=[ReassignablePartition(partition_index=tp.partition, replicas=replicas)]
                )
                for tp, replicas in wanted
            ]
            try:
                await line.ask(1, AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=1000))
            except Lost:
                continue
            self._world.tell("moves: " + ", ".join(f"{tp} to {replicas}" for tp, replicas in wanted))

    def _some(self) -> list[TopicPartition]:
        nodes = self._world.cores.nodes
        topics = {} if not nodes else nodes[0].metadata.image.topics_by_name
        every = [TopicPartition(name, number) for name in sorted(topics) for number in range(topics[name].partitions)]
        return self._random.sample(every, min(len(every), self._random.choice((1, 1, 2, 4))))

    def _target(self) -> list[int] | None:
        if self._random.random() < self._cancels:
            return None
        return [FIRST_NODE_ID + self._random.randrange(self._world.count)]

    # Blows

    async def strike(self, event: Event) -> None:
        """Some calls to the disk after a directory begins to move, or fail such moves for a while."""
        if event.kind == "moves fail":
            disks = [core.disk for core in self._world.cores.members]
            for disk in disks:
                disk.faults = [*disk.faults, Fault(0, kinds=("move",))]
            await nap(event.amount)
            for disk in disks:
                disk.faults = []
            return
        calls_left, begun, reached = 1 + event.after_calls % 16, False, trio.Event()
        hooked = [(core, core.disk) for core in self._world.cores.members]

        def before_io(core: SimCore, kind: str, path: str) -> None:
            nonlocal calls_left, begun
            begun = begun or kind == "move" or MOVED_OFFSETS in path
            calls_left -= begun
            if begun and calls_left == 0:
                unhook()
                if not event.after_passes:
                    self._strike(event, core)
                reached.set()

        def unhook() -> None:
            for _, disk in hooked:
                disk.before_io = None

        for core, disk in hooked:
            disk.before_io = partial(before_io, core)
        with trio.move_on_after(AMID_SECONDS):
            await reached.wait()
            for _ in range(event.after_passes):
                await trio.lowlevel.checkpoint()
        unhook()
        if event.after_passes or not reached.is_set():
            self._strike(event, self._world.cores.members[event.core])

    def _strike(self, event: Event, caller: SimCore) -> None:
        """The core that moves something, or another one, or all of them by a power cut."""
        struck = caller if event.amount < 1 else self._world.cores.members[event.core]
        kind = "kill" if event.kind == "kill amid a move" else "power cut"
        self._world.strike_core(event._replace(core=struck.number, kind=kind))

    # What must hold

    async def watch(self) -> None:
        """A partition has one leader in each leader epoch (KIP-101), whichever cores it moves between."""
        while True:
            await nap(LOOK_SECONDS)
            for node in self._world.cores.nodes:
                for tp, log in list(node.partitions.owned()):
                    if tp.topic == METADATA_TOPIC:
                        continue
                    node_id, term = node.config.node_id, (tp, log.leader_epoch)
                    if log.leader_epoch and term not in self._leaders:
                        self._world.tell(f"broker {node_id} leads {tp} in the leader epoch {log.leader_epoch}")
                    leader = self._leaders.setdefault(term, node_id)
                    if leader != node_id:
                        self._leaders[term] = node_id
                        self._world.outcome.broken.append(
                            f"brokers {leader} and {node_id} lead {tp} in the leader epoch {log.leader_epoch}"
                        )

    async def settle(self) -> None:
        """All moves end, and each partition has one directory, at its leader."""
        with trio.move_on_after(END_SECONDS):
            while under_way := self._under_way():
                await nap(0.05)
        world = self._world
        world.outcome.broken += [f"the move does not end: {one}" for one in under_way]
        image = world.cores.members[0].node.metadata.image  # type: ignore[union-attr]
        for number in range(world.count):
            for name in self._directories(number):
                tp = partition_of(name)
                if tp is None or tp.topic == METADATA_TOPIC:
                    wrong = name.endswith(MOVING)
                else:
                    wrong = image.topics_by_name[tp.topic].assignment[tp.partition].leader != FIRST_NODE_ID + number
                if wrong:
                    world.outcome.broken.append(
                        f"the directory {name} is left at core {number}, which does not lead it"
                    )

    def _under_way(self) -> list[str]:
        found = []
        for node in self._world.cores.nodes:
            found += [f"{tp} at broker {node.config.node_id}" for tp in sorted(node.partitions.moving)]
            for topic in node.metadata.image.topics_by_name.values():
                found += [
                    f"{topic.name}-{number} {one}" for number, one in enumerate(topic.assignment) if one.adding_replicas
                ]
        return found

    def _directories(self, number: int) -> list[str]:
        node = self._world.cores.members[0].disk.root
        for part in core_path(number).parts[1:]:
            below = node.entries[part]
            assert isinstance(below, SimDirectory)
            node = below
        return sorted(name for name, one in node.entries.items() if isinstance(one, SimDirectory))
