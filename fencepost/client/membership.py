"""A consumer's membership in a group: join, sync, heartbeat, rebalance between two batches, leave (rows G1, G2).

OUTSIDE --join, sync--> MEMBER --REBALANCE_IN_PROGRESS, no batch in hand--> OUTSIDE (same member id)
   ^                      |----ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID------> OUTSIDE (partitions are lost)
   '----------------------'----closed----> left
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio

from fencepost.client.assignors import (
    ASSIGNORS,
    Member,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from fencepost.client.cluster import GROUP, Cluster
from fencepost.client.config import ConsumerConfig
from fencepost.client.errors import FencedError, KafkaError, RetriableError, code_of, error_for
from fencepost.client.txn_requests import GroupMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.api12_heartbeat import HeartbeatRequest
from fencepost.protocol.messages.api13_leave_group import LeaveGroupRequest, MemberIdentity
from fencepost.protocol.messages.api14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = (API_BY_KEY[key] for key in (11, 12, 13, 14))
PROTOCOL_TYPE = "consumer"
LEAVE_GRACE_S = 2.0
_JOIN_SLACK_S = 5.0
_OUT = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})


class Reader(Protocol):
    """What membership needs of its consumer."""

    def at_rest(self) -> bool:
        """No batch is in the program's hand, so partitions may change."""
        ...

    async def revoke(self) -> None:
        """The partitions are about to go: commit what is due, then stop reading."""
        ...

    def lose(self) -> None:
        """The partitions are gone already; nothing can be committed for them."""
        ...

    def assign_from_group(self, partitions: list[TopicPartition]) -> None:
        """These partitions are ours now."""
        ...


class Membership:
    """One member of one group, from `run` to `leave`."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, topics: tuple[str, ...], reader: Reader, purpose: str
    ) -> None:
        assert config.group_id is not None
        self._cluster = cluster
        self._config = config
        self._topics = topics
        self._reader = reader
        self._purpose = purpose
        self.group_id = config.group_id
        self.member_id = ""
        self.generation = -1
        self._metadata = GroupMetadata(self.group_id, instance_id=config.group_instance_id)
        self._rebalance = False
        self._wake = trio.Event()
        self._counts: dict[str, int] | None = None

    @property
    def metadata(self) -> GroupMetadata:
        """Group, generation and member, as offset commits name them (KIP-447); one object per generation."""
        known = self._metadata
        if known.generation != self.generation or known.member_id != self.member_id:
            instance_id = self._config.group_instance_id
            known = self._metadata = GroupMetadata(self.group_id, self.generation, self.member_id, instance_id)
        return known

    def resting(self) -> None:
        """The program has handed its batch back: a rebalance that waits for this may go on."""
        if self._rebalance:
            self._wake.set()

    async def run(self) -> None:
        """Be a member until cancelled. Raises KafkaError when the group will not have us."""
        while True:
            partitions = await self._join_until_in()
            self._rebalance = False
            self._reader.assign_from_group(partitions)
            if await self._stay():
                await self._reader.revoke()
            else:
                self._reader.lose()
                self.generation = -1

    # -- joining

    async def _join_until_in(self) -> list[TopicPartition]:
        backoff = self._cluster.policy.backoff()
        while True:
            try:
                return await self._join_once()
            except RetriableError:
                await backoff.pause()
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                elif error.code not in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
                    raise
                await backoff.pause()

    async def _join_once(self) -> list[TopicPartition]:
        config = self._config
        protocol = JoinGroupRequestProtocol(
            name=config.partition_assignment_strategy, metadata=encode_subscription(self._topics)
        )

        def request(version: int) -> Any:
            return JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                member_id=self.member_id,
                group_instance_id=config.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[protocol],
            )

        timeout_s = config.max_poll_interval_ms / 1000 + _JOIN_SLACK_S
        answer = await self._ask(JOIN_GROUP, request, purpose=f"{self._purpose}-join", timeout_s=timeout_s)
        code = code_of(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = await self._ask(JOIN_GROUP, request, purpose=f"{self._purpose}-join", timeout_s=timeout_s)
            code = code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            raise error_for(code, f"group {self.group_id!r} refused the member", api="JoinGroup")
        self.member_id = answer.member_id
        self.generation = answer.generation_id
        assignments = []
        self._counts = None
        if answer.leader == answer.member_id and not answer.skip_assignment:
            assignments = await self._assign(answer.protocol_name, answer.members)
        return await self._sync(answer.protocol_name, assignments, timeout_s)

    async def _assign(self, strategy: str, members: list[Any]) -> list[Any]:
        """The leader's duty: deal out the partitions of everything that any member wants."""
        known = [
            Member(entry.member_id, entry.group_instance_id, decode_subscription(entry.metadata)) for entry in members
        ]
        wanted = sorted({topic for member in known for topic in member.topics})
        await self._cluster.refresh(wanted)
        self._counts = self._partition_counts(wanted)
        assigned = ASSIGNORS[strategy](known, self._counts)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
            for member_id, partitions in assigned.items()
        ]

    def _partition_counts(self, topics: list[str]) -> dict[str, int]:
        known = self._cluster.topics
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}

    async def _sync(self, strategy: str, assignments: list[Any], timeout_s: float) -> list[TopicPartition]:
        answer = await self._ask(
            SYNC_GROUP,
            lambda version: SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self._config.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=strategy,
                assignments=assignments,
            ),
            purpose=f"{self._purpose}-join",
            timeout_s=timeout_s,
        )
        code = code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            raise error_for(code, f"group {self.group_id!r} did not sync", api="SyncGroup")
        partitions = decode_assignment(answer.assignment)
        missing = {topic for topic, _ in partitions if topic not in self._cluster.topics}
        if missing:
            await self._cluster.refresh(missing)
        return partitions

    # -- staying

    async def _stay(self) -> bool:
        """Heartbeat until a rebalance may begin (True) or the membership is lost (False)."""
        interval_s = self._config.heartbeat_interval_ms / 1000
        while True:
            if self._rebalance and self._reader.at_rest():
                return True
            self._wake = trio.Event()
            with trio.move_on_after(interval_s):
                await self._wake.wait()
                continue
            try:
                code = await self._heartbeat()
                await self._look_for_new_partitions()
            except RetriableError:
                continue  # the session timeout, which is the broker's, decides how long this may go on
            if code in _OUT:
                if code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                return False
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._rebalance = True
            elif code is not ErrorCode.NONE:
                raise error_for(code, f"group {self.group_id!r} refused a heartbeat", api="Heartbeat")

    async def _heartbeat(self) -> ErrorCode:
        answer = await self._ask(
            HEARTBEAT,
            lambda version: HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self._config.group_instance_id,
            ),
            purpose=self._purpose,
        )
        return code_of(answer.error_code)

    async def _look_for_new_partitions(self) -> None:
        """The leader rejoins when a topic has other partitions than those it dealt out."""
        if self._counts is None:
            return
        topics = sorted({*self._topics, *self._counts})
        if any(self._cluster.is_stale(topic) for topic in topics):
            await self._cluster.refresh(topics)
        if self._partition_counts(topics) != self._counts:
            self._rebalance = True

    # -- leaving

    async def leave(self) -> None:
        """Tell the group at once, within two seconds; a static member stays for its successor (KIP-345)."""
        if not self.member_id or self._config.group_instance_id is not None:
            return
        with trio.CancelScope(shield=True, deadline=trio.current_time() + LEAVE_GRACE_S):
            try:
                await self._ask(LEAVE_GROUP, self._leave_request, purpose=self._purpose)
            except (RetriableError, FencedError):
                pass  # the session timeout will tell the group
        self.member_id, self.generation = "", -1

    def _leave_request(self, version: int) -> Any:
        return LeaveGroupRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            members=[MemberIdentity(member_id=self.member_id, group_instance_id=self._config.group_instance_id)],
        )

    async def _ask(self, api: Any, request: Callable[[int], Any], **more: Any) -> Any:
        ask: Callable[..., Awaitable[Any]] = self._cluster.ask_coordinator
        return await ask(GROUP, self.group_id, api, request, lambda answer: int(answer.error_code), **more)
