"""What a member of a simulated group does with its partitions: positions, commits, and outputs in transactions."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import trio

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api09_offset_fetch as m9
from fencepost.protocol.topics import TopicPartition
from tests.kit.determinism import nap
from tests.simulation.group_base import BEAT_S, GROUP, REBALANCE_S
from tests.simulation.group_books import Reader, output
from tests.simulation.group_offsets import named
from tests.simulation.group_process import Process

if TYPE_CHECKING:
    from tests.simulation.group_protocols import ProtocolWorld


class Position:
    """Where a member is in one partition; a new one for each time that it is given it."""

    def __init__(self) -> None:
        self.offset: int | None = None


class Worker(Process):
    """The program around a member of a group."""

    owner: Reader
    _world: "ProtocolWorld"

    def __init__(self, world: "ProtocolWorld", owner: Reader, random: Random) -> None:
        super().__init__(world, owner, random)
        self.epoch = 0
        self.has_to_join = False
        """Between two generations nothing can be committed."""
        self._positions: dict[TopicPartition, Position] = {}
        self._work = trio.Lock()

    def draw_by_id(self) -> bool:
        return self._random.choice((False, True))

    # Partitions come and go

    def took(self, partitions: frozenset[TopicPartition]) -> None:
        """These are this member's from now on."""
        self._world.books.took(self.owner, partitions)
        self._positions |= {partition: Position() for partition in partitions}
        self._world.tell(f"{self.owner.name} takes {named(partitions)} in epoch {self.epoch}")

    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """These may be somebody else's already; what is being done with them goes on, as nobody can stop it."""
        self._world.tell(f"{self.owner.name} has lost {named(partitions)}")
        self._put_down(partitions)

    def _put_down(self, partitions: frozenset[TopicPartition]) -> None:
        self._world.books.gave_up(self.owner, partitions)
        for partition in partitions:
            self._positions.pop(partition, None)

    async def give_up(self, partitions: frozenset[TopicPartition], is_wanted: Callable[[], bool]) -> bool:
        """Finish what is being done and put these down; False where that is not wanted any more by then."""
        async with self._work:
            await self.awake()
            if self._random.random() < 0.3:
                await nap(self._random.uniform(0.0, REBALANCE_S / 2))
                await self.awake()
            if not self._world.plan.transactional and self._random.random() < 0.7:
                await self._commit({one: found for one, found in self._positions.items() if one in partitions})
        if not is_wanted():
            return False
        self._world.tell(f"{self.owner.name} gives up {named(partitions)}")
        self._put_down(partitions)
        return True

    # Work

    async def work(self) -> None:
        """Process and commit, for ever."""
        while True:
            await nap(self._random.uniform(0.2, 1.0) * BEAT_S)
            await self.pause()
            async with self._work:
                await self._find_positions()
                some = {one: found for one, found in self._positions.items() if found.offset is not None}
                if not some or self.epoch <= 0 or self.has_to_join:
                    continue
                if self._world.plan.transactional:
                    await self._transact(some)
                else:
                    for found in some.values():
                        assert found.offset is not None
                        found.offset += self._random.randint(0, 3)
                    await self._commit(some)

    async def _find_positions(self) -> None:
        """Where to go on with what is new; positions that are about to change are waited for."""
        wanted = {one: found for one, found in self._positions.items() if found.offset is None}
        if not wanted:
            return
        floor = dict(self._world.books.floor)
        topics: dict[str, list[int]] = {}
        for partition in sorted(wanted):
            topics.setdefault(partition.topic, []).append(partition.partition)
        asked = [m9.OffsetFetchRequestTopics(name=name, partition_indexes=all_) for name, all_ in topics.items()]
        group = m9.OffsetFetchRequestGroup(
            group_id=GROUP, member_id=self.member_id or None, member_epoch=self.epoch, topics=asked
        )
        request = m9.OffsetFetchRequest(groups=[group], require_stable=True)
        answer = await self.ask(self._line, 9, request)
        if answer is None or answer.groups[0].error_code:
            return
        found = {
            TopicPartition(topic.name, part.partition_index): part.committed_offset
            for topic in answer.groups[0].topics
            for part in topic.partitions
            if not part.error_code
        }
        self._world.books.read(self.owner.name, floor, found)
        for partition, offset in found.items():
            wanted[partition].offset = max(offset, 0)

    async def _commit(self, positions: dict[TopicPartition, Position]) -> None:
        """Say how far it is; nothing is done about a refusal here, the next heartbeat tells."""
        offsets = {one: found.offset for one, found in positions.items() if found.offset is not None}
        if offsets and self.epoch > 0:
            await self.commit(self.epoch, offsets)

    async def _transact(self, some: dict[TopicPartition, Position]) -> None:
        """Process some records in a transaction."""
        before = {one: found.offset or 0 for one, found in some.items()}
        after = {one: offset + self._random.randint(0, 3) for one, offset in before.items()}
        outputs = [output(one, at) for one, offset in before.items() for at in range(offset, after[one])]
        if outputs:
            done = await self.transact(self.epoch, after, outputs) is ErrorCode.NONE
            for partition, found in some.items():
                found.offset = after[partition] if done else None  # nobody knows: ask
