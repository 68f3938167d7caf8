"""What any process that is a member of a simulated group does by the wire: ask, join, commit; or stand still."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

import trio

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api08_offset_commit as m8
from fencepost.protocol.messages import api11_join_group as m11
from fencepost.protocol.messages import api12_heartbeat as m12
from fencepost.protocol.messages import api14_sync_group as m14
from fencepost.protocol.messages import api28_txn_offset_commit as m28
from fencepost.protocol.topics import TopicPartition
from tests.kit.determinism import nap
from tests.simulation.group_base import (
    AGAIN_S,
    GROUP,
    REBALANCE_S,
    SESSION_S,
    TXN_PATIENCE_S,
    TXN_TIMEOUT_MS,
    BaseWorld,
)
from tests.simulation.group_offsets import Owner, Sent
from tests.simulation.lines import Line, Lost
from tests.simulation.txn_client import RETRIABLE, Abortable, Fenced, GaveUp, TxnClient

Named = Iterable[tuple[str, bytes]]
"""Metadata of protocols, or shares of members, by name."""
OUT = ("out", 0)
"""Where outputs go."""
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


class Process:
    """One process: its connections, its freezes, and a producer of its own where it needs one."""

    def __init__(self, world: BaseWorld[Any], owner: Owner, random: Random) -> None:
        self.owner = owner
        self.member_id = ""
        self._world = world
        self._random = random
        self._lines: list[Line] = []
        self._line = self.new_line("work")
        self._producer: TxnClient | None = None
        self._wakes_at = 0.0

    def new_line(self, purpose: str) -> Line:
        """A connection for one of its tasks."""
        self._lines.append(self._world.line(f"{self.owner.name}-{purpose}"))
        return self._lines[-1]

    def close(self) -> None:
        """The process is gone."""
        for line in self._lines:
            line.close()

    def maybe_freeze(self) -> None:
        """Now and then the process stands still: for a moment, or for longer than its session."""
        world = self._world
        if world.weather.calm or self._random.random() >= world.plan.freezes or self._wakes_at > trio.current_time():
            return
        seconds = self._random.uniform(0.1, 2 * SESSION_S)
        world.tell(f"{self.owner.name} freezes for {seconds:.2f} s")
        self._wakes_at = trio.current_time() + seconds

    async def awake(self) -> None:
        """Come back when the process does not stand still."""
        while (left := self._wakes_at - trio.current_time()) > 0:
            await nap(left)

    async def pause(self) -> None:
        """Stand still, or go on."""
        self.maybe_freeze()
        await self.awake()

    def draw_by_id(self) -> bool:
        """Whether the next commit names its topics by their ids."""
        return False

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

    # Membership of the classic protocol

    async def join(self, line: Line, version: int, member_id: str, protocols: Named, reason: str | None = None) -> Any:
        """JoinGroup; the answer, or None."""
        request = m11.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=round(SESSION_S * 1000),
            rebalance_timeout_ms=round(REBALANCE_S * 1000),
            member_id=member_id,
            group_instance_id=self.owner.instance_id,
            protocol_type="consumer",
            protocols=[m11.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
            reason=reason,
        )
        return await self.ask(line, version, request, REBALANCE_S + 1)

    async def sync(self, line: Line, version: int, member_id: str, generation: int, protocol: str, given: Named) -> Any:
        """SyncGroup as a member of a generation, with what its leader gives everybody; the answer, or None."""
        request = m14.SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self.owner.instance_id,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[m14.SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in given],
        )
        return await self.ask(line, version, request, REBALANCE_S + 1)

    async def beat(self, line: Line, member_id: str, generation: int) -> Any:
        """Heartbeat; the answer, or None."""
        fields = {"generation_id": generation, "member_id": member_id, "group_instance_id": self.owner.instance_id}
        return await self.ask(line, 4, m12.HeartbeatRequest(group_id=GROUP, **fields))

    # Offsets

    async def commit(self, epoch: int, offsets: Mapping[TopicPartition, int]) -> ErrorCode | None:
        """Say how far it is; None where nobody answers."""
        by_id = self.draw_by_id()
        request = m8.OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=epoch,
            member_id=self.member_id,
            group_instance_id=self.owner.instance_id,
            topics=self._topics(m8.OffsetCommitRequestTopic, m8.OffsetCommitRequestPartition, offsets, by_id),
        )
        sent = self._world.books.sending(self.owner, epoch, offsets)
        answer = await self.ask(self._line, 9 + by_id, request)
        return None if answer is None else self._judged(sent, code_of(answer), epoch)

    async def transact(
        self, epoch: int, offsets: Mapping[TopicPartition, int], outputs: Sequence[str] = ()
    ) -> ErrorCode | None:
        """Commit in a transaction of this process's own, with outputs: the group alone shuts a zombie out (KIP-447).

        None where nobody knows, or where it cannot count.
        """
        member_id = self.member_id  # as the program knew it when it read these records
        try:
            if self._producer is None:
                name, line = f"txn-{self.owner.name}", self.new_line("txn")
                producer = TxnClient(line, name, 2, TXN_TIMEOUT_MS, self._random, self._world.tell, TXN_PATIENCE_S)
                await producer.init()
                self._producer = producer
            if outputs:
                await self._producer.send(OUT, outputs)
                await self.pause()
            sent = self._world.books.sending(self.owner, epoch, offsets)
            code = await self._send_offsets(self._producer, member_id, epoch, offsets)
            if code is None or code in PRODUCER_OUT:
                self._producer = None  # the transaction times out, or the next init ends it
                return None
            await self.pause()
            await self._producer.end(commit=code is ErrorCode.NONE)
            return self._judged(sent, code, epoch)
        except (GaveUp, Abortable, Fenced):
            self._producer = None
            return None

    async def _send_offsets(
        self, producer: TxnClient, member_id: str, epoch: int, offsets: Mapping[TopicPartition, int]
    ) -> ErrorCode | None:
        """TxnOffsetCommit as this member; None where nobody answers."""
        by_id = self.draw_by_id()
        request = m28.TxnOffsetCommitRequest(
            **producer.identity,
            group_id=GROUP,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=self.owner.instance_id,
            topics=self._topics(m28.TxnOffsetCommitRequestTopic, m28.TxnOffsetCommitRequestPartition, offsets, by_id),
        )
        for _ in range(5):
            answer = await self.ask(self._line, 5 + by_id, request)
            if answer is not None and (code := code_of(answer)) not in RETRIABLE:
                return code
            await nap(AGAIN_S)
        return None

    def _topics(self, topic: Any, part: Any, offsets: Mapping[TopicPartition, int], by_id: bool) -> list[Any]:
        topics: dict[str, list[Any]] = {}
        for partition, offset in offsets.items():
            one = part(partition_index=partition.partition, committed_offset=offset, committed_metadata="")
            topics.setdefault(partition.topic, []).append(one)
        return [
            topic(topic_id=self._world.ids[name], partitions=all_) if by_id else topic(name=name, partitions=all_)
            for name, all_ in topics.items()
        ]

    def _judged(self, sent: Sent, code: ErrorCode, epoch: int) -> ErrorCode:
        """Put down in the books what became of a commit."""
        if code is ErrorCode.NONE:
            self._world.books.acknowledged(sent)
        elif code in STALE:
            self._world.outcome.refused += 1
            self._world.tell(f"{self.owner.name}: a commit in epoch {epoch} is {code.name}")
        return code


def code_of(answer: Any) -> ErrorCode:
    """The one code of all partitions."""
    [code] = {ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions}
    return code
