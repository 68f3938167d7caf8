"""The membership in a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and topic changes (G1, G2)."""

from functools import partial
from typing import Any

import anyio

from fencepost.client.config import ConsumerConfig
from fencepost.client.core.assignors import strategies
from fencepost.client.core.classic_member import NO_GENERATION, ClassicMember, Joined, JoinedMember
from fencepost.client.core.group_steps import EXPELLED, CountPartitions, Join, Step, Sync
from fencepost.client.core.group_types import GroupMetadata
from fencepost.client.errors import KafkaError, RetriableError, code_of
from fencepost.client.group.membership import Membership, Reader
from fencepost.client.group.subscription import Subscription, wanted_topics
from fencepost.client.network.cluster import Cluster
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.api12_heartbeat import HeartbeatRequest
from fencepost.protocol.messages.api13_leave_group import LeaveGroupRequest, MemberIdentity
from fencepost.protocol.messages.api14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PROTOCOL_TYPE = "consumer"
_JOIN_SLACK_S = 5.0
_STATIC_SINCE = 5
_MEMBERSHIP_ERRORS = EXPELLED | {ErrorCode.FENCED_INSTANCE_ID}


class ClassicMembership(Membership[ClassicMember]):
    """Carries out the steps of a ClassicMember."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, subscription: Subscription, reader: Reader, purpose: str
    ) -> None:
        super().__init__(cluster, config, subscription, reader, purpose)
        offered = strategies(config.partition_assignment_strategy)
        self._machine = ClassicMember(offered, subscription.topics, config.group_instance_id)
        self._refreshed_at = -float("inf")

    def _identity(self) -> tuple[int, str]:
        machine = self._machine
        return (NO_GENERATION, "") if machine.generation == NO_GENERATION else (machine.generation, machine.member_id)

    @property
    def is_rejoining(self) -> bool:
        return self._machine.is_rejoining

    @property
    def _awaits_partitions(self) -> bool:
        return self._machine.is_joining

    def _subscribed(self) -> None:
        self._refreshed_at = -float("inf")
        self._machine.subscribe(wanted_topics(self._subscription, self._cluster))

    def _expel(self, reason: str) -> None:
        self._machine.expelled(reason)

    def commit_rejected(self, group: GroupMetadata, code: ErrorCode) -> None:
        if code in _MEMBERSHIP_ERRORS:
            self._machine.responded(group.generation, code, "OffsetCommit")
            self._notify()

    async def _do(self, step: Step) -> None:
        match step:
            case Join():
                await self._attempt(partial(self._join, step))
            case CountPartitions(topics):
                await self._attempt(partial(self._deal, topics))
            case Sync():
                await self._attempt(partial(self._sync, step))
            case _:
                await self._sleep()

    # -- joining

    @property
    def _join_timeout_s(self) -> float:
        return self._config.max_poll_interval_ms / 1000 + _JOIN_SLACK_S

    async def _join(self, step: Join) -> None:
        if self._subscription.pattern is not None:
            await self._refresh_topics()
            again = self._machine.step()  # the pattern may match other topics now
            if not isinstance(again, Join):
                return
            step = again
        config = self._config
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=step.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in step.protocols],
            reason=step.reason,
        )
        response = await self._ask(
            request,
            purpose=f"{self._purpose}-join",
            timeout_s=self._join_timeout_s,
            at_least=0 if config.group_instance_id is None else _STATIC_SINCE,
        )
        code = code_of(response.error_code)
        self._machine.joined(
            Joined(
                code,
                response.member_id,
                response.generation_id,
                response.protocol_name or "",
                response.leader,
                response.skip_assignment,
                [JoinedMember(one.member_id, one.group_instance_id, one.metadata) for one in response.members],
            )
        )
        if code is not ErrorCode.NONE and code is not ErrorCode.MEMBER_ID_REQUIRED:
            await self._backoff.pause()

    async def _deal(self, topics: tuple[str, ...]) -> None:
        await self._cluster.refresh(topics)
        self._machine.counted(self._partition_counts(topics))

    def _partition_counts(self, topics: Any) -> dict[str, int]:
        known = self._cluster.topics
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}

    async def _sync(self, step: Sync) -> None:
        response = await self._ask(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=step.generation,
                member_id=step.member_id,
                group_instance_id=self._config.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=step.strategy,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                    for member_id, data in step.assignments
                ],
            ),
            purpose=f"{self._purpose}-join",
            timeout_s=self._join_timeout_s,
        )
        self._machine.synced(step.generation, code_of(response.error_code), bytes(response.assignment))

    # -- staying

    async def send_heartbeats(self) -> None:
        while not self._failed:
            await anyio.sleep(self._config.heartbeat_interval_ms / 1000)
            if self._machine.sends_heartbeats and not self._away:
                try:
                    await self._heartbeat_once()
                    await self._check_topics()
                except RetriableError:
                    continue  # the broker's session timeout limits these retries
                except KafkaError as error:
                    self._fail(error)
                self._notify()

    async def _heartbeat_once(self) -> None:
        machine = self._machine
        generation = machine.generation
        response = await self._ask(
            HeartbeatRequest(
                group_id=self.group_id,
                generation_id=generation,
                member_id=machine.member_id,
                group_instance_id=self._config.group_instance_id,
            ),
            purpose=self._purpose,
        )
        machine.responded(generation, code_of(response.error_code))

    async def _check_topics(self) -> None:
        """Find new topics that match the pattern; for the leader, topics of the group that have changed."""
        if self._subscription.pattern is not None:
            await self._refresh_topics()
        if watched := self._machine.watched:
            if any(self._cluster.is_stale(topic) for topic in watched):
                await self._cluster.refresh(sorted(watched))
            self._machine.topics_counted(self._partition_counts(watched))

    async def _refresh_topics(self) -> None:
        now = anyio.current_time()
        if now - self._refreshed_at >= self._cluster.config.metadata_max_age_ms / 1000:
            await self._cluster.refresh(None)
            self._refreshed_at = now
            self._machine.subscribe(wanted_topics(self._subscription, self._cluster))

    async def _leave_group(self, reason: str) -> None:
        member_id = self._machine.member_id
        if not member_id or self._config.group_instance_id is not None:
            return
        identity = MemberIdentity(member_id=member_id, group_instance_id=None, reason=reason)
        await self._send_leave(LeaveGroupRequest(group_id=self.group_id, member_id=member_id, members=[identity]))
