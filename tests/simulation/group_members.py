"""A consumer of the classic protocol as a program over raw requests: it joins, leads, lives, freezes and comes back."""

import json
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api08_offset_commit as m8
from fencepost.protocol.messages import api09_offset_fetch as m9
from fencepost.protocol.messages import api11_join_group as m11
from fencepost.protocol.messages import api12_heartbeat as m12
from fencepost.protocol.messages import api13_leave_group as m13
from fencepost.protocol.messages import api14_sync_group as m14
from fencepost.protocol.messages import api28_txn_offset_commit as m28
from tests.simulation.group_base import REBALANCE_S, SESSION_S
from tests.simulation.group_ledger import Holder
from tests.simulation.lines import Lost
from tests.simulation.txn_client import RETRIABLE, Abortable, GaveUp, TxnClient
from tests.simulation.txn_client import Fenced as ProducerFenced

if TYPE_CHECKING:
    from tests.simulation.group_world import GroupWorld

GROUP, TOPIC, PROTOCOL = "g", "in", "sim"
BEAT_S = 0.3
AGAIN_S = 0.1
TXN_TIMEOUT_MS = 4000
TXN_PATIENCE_S = 1.5
PRODUCER_OUT = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
STALE = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID})


class Out(Exception):
    """The member is not in its generation any more: what it owned is lost."""


class Again(Exception):
    """The group rebalances: the member is to join again."""


class Fenced(Exception):
    """Somebody else has the member's static place: it must end."""


class Member:
    """One incarnation. What it owns is lost as soon as it learns that it is out."""

    def __init__(self, world: "GroupWorld", name: str, random: Random, version: int, instance_id: str | None) -> None:
        self.holder = Holder(name, instance_id)
        self.frozen = False
        self._world = world
        self._random = random
        self._line = world.line(name)
        self._version = version
        self._id = ""
        self._positions: dict[int, int] = {}
        self._producer: TxnClient | None = None

    @property
    def _books(self) -> Any:
        return self._world.ledger

    async def run(self) -> None:
        """Be a member until cancelled or fenced."""
        try:
            while True:
                try:
                    await self._join()
                    await self._stay()
                except Again:
                    await self._give_up_for_rebalance()
                except Out:
                    self._lose()
        except Fenced:
            self._world.tell(f"{self.holder.name} is fenced")
        finally:
            self._books.gave_up(self.holder)
            self._line.close()

    def _lose(self) -> None:
        self._books.gave_up(self.holder)
        self._positions.clear()

    async def _give_up_for_rebalance(self) -> None:
        """Eager members commit and give up all; cooperative ones keep what they have while they join again."""
        if self._world.plan.cooperative:
            return
        if self._positions and self._random.random() < 0.7:
            try:
                await self._commit()
            except (Again, Out):
                pass  # too late for that: whoever gets the partitions reads the last ones again
        self._lose()

    # Joining

    async def _join(self) -> None:
        """Until there is an assignment. Raises Out, Again and Fenced."""
        self._books.joining(self.holder)
        owned = {"owned": sorted(self.holder.partitions), "generation": self.holder.generation}
        fields = {
            "group_id": GROUP,
            "session_timeout_ms": round(SESSION_S * 1000),
            "rebalance_timeout_ms": round(REBALANCE_S * 1000),
            "group_instance_id": self.holder.instance_id,
            "protocol_type": "consumer",
            "protocols": [m11.JoinGroupRequestProtocol(name=PROTOCOL, metadata=json.dumps(owned).encode())],
        }
        while True:
            request = m11.JoinGroupRequest(member_id=self._id, **fields)
            answer = await self._ask(self._version, request, REBALANCE_S + 1)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else ErrorCode(answer.error_code)
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self._id = answer.member_id
            elif code is ErrorCode.NONE:
                break
            elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                self._id = ""
                raise Out
            elif code is ErrorCode.FENCED_INSTANCE_ID:
                raise Fenced
            else:
                await trio.sleep(AGAIN_S)
        self._id = answer.member_id
        await self._sync(answer)

    async def _sync(self, joined: Any) -> None:
        given = []
        if joined.leader == self._id and not joined.skip_assignment:
            shares = shared_out(
                {one.member_id: json.loads(one.metadata) for one in joined.members},
                self._world.plan.partitions,
                cooperative=self._world.plan.cooperative,
            )
            given = [
                m14.SyncGroupRequestAssignment(member_id=member_id, assignment=json.dumps(share).encode())
                for member_id, share in shares.items()
            ]
        request = m14.SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=self._id,
            group_instance_id=self.holder.instance_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=given,
        )
        while True:
            sent_at = trio.current_time()
            answer = await self._ask(5 if self._version >= 7 else 3, request, REBALANCE_S + 1)
            if answer is not None and not self._retry(ErrorCode(answer.error_code)):
                break
            await trio.sleep(AGAIN_S)
        share = frozenset(json.loads(answer.assignment or b"[]"))
        revoked = self.holder.partitions - share
        if revoked:
            if self._random.random() < 0.7:
                await self._commit(generation=joined.generation_id)
            self._books.gave_up(self.holder, revoked)
            self._positions = {p: offset for p, offset in self._positions.items() if p in share}
        self._books.told(self.holder, joined.generation_id, share, sent_at)
        self._world.tell(f"{self.holder.name} owns {sorted(share)} in generation {joined.generation_id}")
        if revoked and self.holder.instance_id is not None:
            self._world.owes_join[self.holder.instance_id] = joined.generation_id
        await self._find_positions()
        if revoked:
            raise Again  # what was given up may now be handed out
        if self._world.owes_join.get(self.holder.instance_id) == joined.generation_id:
            # Its forerunner gave something up and died before it joined again. The coordinator leaves a stable group
            # as it is when a static place changes hands, Kafka's as ours, and no client knows: an operator helps here.
            self._world.tell(f"{self.holder.name} is told to join again in its forerunner's place")
            self._world.owes_join[self.holder.instance_id] = -1
            raise Again

    def _retry(self, code: ErrorCode) -> bool:
        """Whether to ask the same again. Raises what the code means for a member."""
        if code is ErrorCode.NONE:
            return False
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            raise Again
        if code is ErrorCode.FENCED_INSTANCE_ID:
            raise Fenced
        if code in STALE:
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self._id = ""
            raise Out
        return True

    # Living

    async def _stay(self) -> None:
        """Heartbeats and commits until something comes in between. Raises Out, Again and Fenced."""
        while True:
            await self._world.maybe_freeze(self)
            await trio.sleep(self._random.uniform(0.2, 1.0) * BEAT_S)
            if self._random.random() < 0.4:
                await self._beat()
            elif self._positions:
                for partition in self._positions:
                    self._positions[partition] += self._random.randint(0, 3)
                await self._commit()
            else:
                await self._beat()

    async def _beat(self) -> None:
        request = m12.HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.holder.generation,
            member_id=self._id,
            group_instance_id=self.holder.instance_id,
        )
        sent_at = trio.current_time()
        answer = await self._ask(4, request)
        if answer is not None and not self._retry(ErrorCode(answer.error_code)):
            self._books.in_touch(self.holder, sent_at)

    async def _commit(self, generation: int | None = None) -> None:
        """Say how far it is. Raises Out, Again and Fenced."""
        generation = self.holder.generation if generation is None else generation
        offsets = dict(self._positions)
        if self._world.plan.transactional:
            if offsets:
                await self._transact(generation, offsets)
            return
        partitions = [
            m8.OffsetCommitRequestPartition(partition_index=p, committed_offset=o) for p, o in offsets.items()
        ]
        request = m8.OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=self._id,
            group_instance_id=self.holder.instance_id,
            topics=[m8.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )
        sent = self._books.sending(self.holder, generation, offsets)
        answer = await self._ask(8, request)
        if answer is None or not partitions:
            return
        [code] = {ErrorCode(one.error_code) for one in answer.topics[0].partitions}
        if code in STALE:
            self._books.refused += 1
        if not self._retry(code):
            self._books.acknowledged(sent)

    async def _transact(self, generation: int, offsets: dict[int, int]) -> None:
        """Commit within a transaction of this process's own id: only the generation shuts a zombie out (KIP-447).

        Raises Out, Again and Fenced.
        """
        try:
            if self._producer is None:
                name, line = f"txn-{self.holder.name}", self._world.line(f"{self.holder.name}-txn")
                self._producer = TxnClient(
                    line, name, 2, TXN_TIMEOUT_MS, self._random, self._world.tell, TXN_PATIENCE_S
                )
                await self._producer.init()
            sent = self._books.sending(self.holder, generation, offsets)
            code = await self._send_offsets(self._producer, generation, offsets)
            if code is None or code in PRODUCER_OUT:
                self._producer = None  # the transaction times out, or has; the next one is somebody else's
                return
            await self._world.maybe_freeze(self)
            await self._producer.end(commit=code is ErrorCode.NONE)
            if code is ErrorCode.NONE:
                self._books.acknowledged(sent)
        except (GaveUp, Abortable, ProducerFenced):
            self._producer = None
            return
        if code in STALE:
            self._books.refused += 1
        self._retry(code)

    async def _send_offsets(self, producer: TxnClient, generation: int, offsets: dict[int, int]) -> ErrorCode | None:
        """TxnOffsetCommit as this member; None where nobody answers."""
        partitions = [
            m28.TxnOffsetCommitRequestPartition(partition_index=p, committed_offset=o, committed_metadata="")
            for p, o in offsets.items()
        ]
        request = m28.TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id=GROUP,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id_or_member_epoch=generation,
            member_id=self._id,
            group_instance_id=self.holder.instance_id,
            topics=[m28.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )
        for _ in range(5):
            answer = await self._ask(5, request)
            if answer is not None:
                [code] = {ErrorCode(one.error_code) for one in answer.topics[0].partitions}
                if code not in RETRIABLE:
                    return code
            await trio.sleep(AGAIN_S)
        return None

    async def _find_positions(self) -> None:
        """Where to go on with what is new."""
        wanted = sorted(self.holder.partitions - self._positions.keys())
        while wanted:
            floor = dict(self._books.floor)
            found = await self._world.committed(self._line, wanted)
            if found is not None:
                self._books.read(self.holder.name, floor, found)
                self._positions |= {p: max(offset, 0) for p, offset in found.items()}
                return
            await trio.sleep(AGAIN_S)
            await self._beat()  # a transaction of the one before may have to time out first

    async def leave(self) -> None:
        """Go in order; the answer does not matter."""
        name = m13.MemberIdentity(member_id=self._id, group_instance_id=self.holder.instance_id)
        self._books.gave_up(self.holder)
        await self._ask(4, m13.LeaveGroupRequest(group_id=GROUP, members=[name]))
        self._line.close()

    async def _ask(self, version: int, request: Any, timeout_s: float = 1.0) -> Any:
        """The answer, or None where there is none."""
        try:
            return await self._line.ask(version, request, timeout_s)
        except Lost:
            await trio.sleep(self._random.uniform(0.0, AGAIN_S))
            return None


def shared_out(members: dict[str, Any], partitions: int, *, cooperative: bool) -> dict[str, list[int]]:
    """Who gets what. Cooperative: nobody is given what another member still owns (KIP-429)."""
    names = sorted(members)
    if not cooperative:
        return {name: [p for p in range(partitions) if p % len(names) == at] for at, name in enumerate(names)}
    owners: dict[int, tuple[int, str]] = {}
    for name in names:
        for partition in members[name]["owned"]:
            owners[partition] = max(owners.get(partition, (-1, "")), (members[name]["generation"], name))
    fair = -(-partitions // len(names))
    shares: dict[str, list[int]] = {name: [] for name in names}
    for partition, (_, name) in sorted(owners.items()):
        if len(shares[name]) < fair:
            shares[name].append(partition)
    for partition in range(partitions):
        if partition not in owners:
            min(shares.values(), key=len).append(partition)
    return shares


def fetch_request(partitions: list[int]) -> Any:
    """OffsetFetch v7 of some partitions."""
    topic = m9.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=partitions)
    return m9.OffsetFetchRequest(group_id=GROUP, topics=[topic], require_stable=True)
