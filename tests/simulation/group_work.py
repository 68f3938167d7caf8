"""What a member of a simulated group does with its partitions: positions, commits, and outputs in transactions."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api08_offset_commit as m8
from fencepost.protocol.messages import api09_offset_fetch as m9
from fencepost.protocol.messages import api28_txn_offset_commit as m28
from fencepost.protocol.topics import TopicPartition
from fencepost.testing.determinism import nap
from tests.simulation.group_base import REBALANCE_S, SESSION_S
from tests.simulation.group_books import Books, Owner, Sent, output
from tests.simulation.lines import Line, Lost
from tests.simulation.txn_client import RETRIABLE, Abortable, Fenced, GaveUp, TxnClient

if TYPE_CHECKING:
    from tests.simulation.group_protocols import ProtocolWorld

GROUP, OUT = "g", ("out", 0)
BEAT_S = 0.3
AGAIN_S = 0.1
TXN_TIMEOUT_MS, TXN_PATIENCE_S = 4000, 1.5
PRODUCER_OUT = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
STALE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


class Position:
    """Where a member is in one partition; a new one for each time that it is given it."""

    def __init__(self) -> None:
        self.offset: int | None = None


class Worker:
    """The program around a member of a group. Frozen, it does nothing at all until it wakes up."""

    def __init__(self, world: "ProtocolWorld", owner: Owner, random: Random) -> None:
        self.owner = owner
        self.member_id = ""
        self.epoch = 0
        self.has_to_join = False
        """Between two generations nothing can be committed."""
        self._world = world
        self._random = random
        self._lines: list[Line] = []
        self._positions: dict[TopicPartition, Position] = {}
        self._work = trio.Lock()
        self._wakes_at = 0.0
        self._producer: TxnClient | None = None

    @property
    def _books(self) -> Books:
        return self._world.books

    def new_line(self, purpose: str) -> Line:
        """A connection for one of the tasks."""
        self._lines.append(self._world.line(f"{self.owner.name}-{purpose}"))
        return self._lines[-1]

    def close(self) -> None:
        """The process is gone."""
        for line in self._lines:
            line.close()

    async def ask(self, line: Line, version: int, request: Any, timeout_s: float = 1.0) -> Any:
        """The answer, or None where there is none; a frozen process neither asks nor hears."""
        await self.awake()
        answer = None
        try:
            answer = await line.ask(version, request, timeout_s)
        except Lost:
            await nap(self._random.uniform(0.0, AGAIN_S))
        await self.awake()
        return answer

    async def awake(self) -> None:
        """Come back when the process does not stand still."""
        while (left := self._wakes_at - trio.current_time()) > 0:
            await nap(left)

    def maybe_freeze(self) -> None:
        """Now and then the process stands still: for a moment, or for longer than its session."""
        world = self._world
        if world.weather.calm or self._random.random() >= world.plan.freezes or self._wakes_at > trio.current_time():
            return
        seconds = self._random.uniform(0.1, 2 * SESSION_S)
        world.tell(f"{self.owner.name} freezes for {seconds:.2f} s")
        self._wakes_at = trio.current_time() + seconds

    # Partitions come and go

    def took(self, partitions: frozenset[TopicPartition]) -> None:
        """These are this member's from now on."""
        self._books.took(self.owner, partitions)
        self._positions |= {partition: Position() for partition in partitions}
        self._world.tell(f"{self.owner.name} takes {_named(partitions)} in epoch {self.epoch}")

    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """These may be somebody else's already; what is being done with them goes on, as nobody can stop it."""
        self._world.tell(f"{self.owner.name} has lost {_named(partitions)}")
        self._put_down(partitions)

    def _put_down(self, partitions: frozenset[TopicPartition]) -> None:
        self._books.gave_up(self.owner, partitions)
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
        self._world.tell(f"{self.owner.name} gives up {_named(partitions)}")
        self._put_down(partitions)
        return True

    # Work

    async def work(self) -> None:
        """Process and commit, for ever."""
        line = self.new_line("work")
        while True:
            await nap(self._random.uniform(0.2, 1.0) * BEAT_S)
            self.maybe_freeze()
            await self.awake()
            async with self._work:
                await self._find_positions(line)
                some = {one: found for one, found in self._positions.items() if found.offset is not None}
                if not some or self.epoch <= 0 or self.has_to_join:
                    continue
                if self._world.plan.transactional:
                    await self._transact(line, some)
                else:
                    for found in some.values():
                        assert found.offset is not None
                        found.offset += self._random.randint(0, 3)
                    await self._commit(some)

    async def _find_positions(self, line: Line) -> None:
        """Where to go on with what is new; positions that are about to change are waited for."""
        wanted = {one: found for one, found in self._positions.items() if found.offset is None}
        if not wanted:
            return
        floor = dict(self._books.floor)
        topics: dict[str, list[int]] = {}
        for partition in sorted(wanted):
            topics.setdefault(partition.topic, []).append(partition.partition)
        asked = [m9.OffsetFetchRequestTopics(name=name, partition_indexes=all_) for name, all_ in topics.items()]
        group = m9.OffsetFetchRequestGroup(
            group_id=GROUP, member_id=self.member_id or None, member_epoch=self.epoch, topics=asked
        )
        request = m9.OffsetFetchRequest(groups=[group], require_stable=True)
        answer = await self.ask(line, 9, request)
        if answer is None or answer.groups[0].error_code:
            return
        found = {
            TopicPartition(topic.name, part.partition_index): part.committed_offset
            for topic in answer.groups[0].topics
            for part in topic.partitions
            if not part.error_code
        }
        self._books.read(self.owner.name, floor, found)
        for partition, offset in found.items():
            wanted[partition].offset = max(offset, 0)

    async def _commit(self, positions: dict[TopicPartition, Position]) -> None:
        """Say how far it is; nothing is done about a refusal here, the next heartbeat tells."""
        offsets = {one: found.offset for one, found in positions.items() if found.offset is not None}
        if not offsets or self.epoch <= 0:
            return
        version = self._random.choice((9, 10))
        request = m8.OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.owner.instance_id,
            topics=self._topics(m8.OffsetCommitRequestTopic, m8.OffsetCommitRequestPartition, offsets, version == 10),
        )
        sent = self._books.sending(self.owner, offsets)
        answer = await self.ask(self._work_line(), version, request)
        if answer is not None:
            self._judge(sent, _code(answer))

    def _work_line(self) -> Line:
        return next((line for line in self._lines if line.client_id.endswith("-work")), self._lines[0])

    def _topics(self, topic: Any, part: Any, offsets: dict[TopicPartition, int], by_id: bool) -> list[Any]:
        topics: dict[str, list[Any]] = {}
        for partition, offset in offsets.items():
            one = part(partition_index=partition.partition, committed_offset=offset, committed_metadata="")
            topics.setdefault(partition.topic, []).append(one)
        return [
            topic(topic_id=self._world.ids[name], partitions=all_) if by_id else topic(name=name, partitions=all_)
            for name, all_ in topics.items()
        ]

    def _judge(self, sent: Sent, code: ErrorCode) -> bool:
        """Whether the commit counts."""
        if code is ErrorCode.NONE:
            self._books.acknowledged(sent)
            return True
        if code in STALE:
            self._books.refused += 1
            self._world.tell(f"{self.owner.name}: a commit in epoch {self.epoch} is {code.name}")
        return False

    async def _transact(self, line: Line, some: dict[TopicPartition, Position]) -> None:
        """Process some records in a transaction of this process's own: the group alone shuts a zombie out (KIP-447)."""
        before = {one: found.offset or 0 for one, found in some.items()}
        after = {one: offset + self._random.randint(0, 3) for one, offset in before.items()}
        outputs = [output(one, at) for one, offset in before.items() for at in range(offset, after[one])]
        if not outputs:
            return
        done, identity = False, (self.member_id, self.epoch)  # as the program knew it when it read these records
        try:
            if self._producer is None:
                name, own_line = f"txn-{self.owner.name}", self.new_line("txn")
                producer = TxnClient(own_line, name, 2, TXN_TIMEOUT_MS, self._random, self._world.tell, TXN_PATIENCE_S)
                await producer.init()
                self._producer = producer
            await self._producer.send(OUT, outputs)
            self.maybe_freeze()
            await self.awake()
            sent = self._books.sending(self.owner, after)
            code = await self._send_offsets(line, self._producer, after, *identity)
            if code is None or code in PRODUCER_OUT:
                self._producer = None  # the transaction times out, or the next init ends it
                return
            self.maybe_freeze()
            await self.awake()
            await self._producer.end(commit=code is ErrorCode.NONE)
            done = self._judge(sent, code)
        except (GaveUp, Abortable, Fenced):
            self._producer = None
        finally:
            for partition, found in some.items():
                found.offset = after[partition] if done else None  # nobody knows: ask

    async def _send_offsets(
        self, line: Line, producer: TxnClient, offsets: dict[TopicPartition, int], member_id: str, epoch: int
    ) -> ErrorCode | None:
        """TxnOffsetCommit as this member; None where nobody answers."""
        version = self._random.choice((5, 6))
        request = m28.TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=GROUP,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=self.owner.instance_id,
            topics=self._topics(
                m28.TxnOffsetCommitRequestTopic, m28.TxnOffsetCommitRequestPartition, offsets, version == 6
            ),
        )
        for _ in range(5):
            answer = await self.ask(line, version, request)
            if answer is not None and (code := _code(answer)) not in RETRIABLE:
                return code
            await nap(AGAIN_S)
        return None


def _code(answer: Any) -> ErrorCode:
    [code] = {ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions}
    return code


def _named(partitions: frozenset[TopicPartition]) -> str:
    return ", ".join(str(one) for one in sorted(partitions))
