"""The group coordinator: runs each group's decisions against its partition of `__consumer_offsets`."""

import logging
import uuid
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from sys import intern
from typing import Any, TypeVar

import trio

from fencepost.coordinator.deferred import Deferred
from fencepost.coordinator.group import classic, join, notes, rebalance
from fencepost.coordinator.group.commands import (
    Join,
    JoinReply,
    LeaveReply,
    MemberName,
    Sync,
    SyncReply,
)
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer_service import ConsumerGroups
from fencepost.coordinator.group.decision import ClassicDecision
from fencepost.coordinator.group.effects import Effects
from fencepost.coordinator.group.parking import Parking, settled, unless_refused
from fencepost.coordinator.group.positions import GroupPositions
from fencepost.coordinator.group.shard_state import GroupRecords
from fencepost.coordinator.group.shards import GroupRuntime, GroupShard, GroupShards, coordinator_error
from fencepost.coordinator.group.state import (
    CompletingRebalance,
    Member,
    Stable,
    group_members,
)
from fencepost.coordinator.group.timers import TimerKey, TimerKind
from fencepost.coordinator.metadata.topic_names import GROUP_TOPIC
from fencepost.coordinator.ports import Clock, CoordinatorLogs, LogWriteFailed, TopicView
from fencepost.coordinator.runtime.runtime import CoordinatorRuntime
from fencepost.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

ReplyT = TypeVar("ReplyT")

RETRY_MS = 1000
"""When a timer whose write was refused goes off again."""


class GroupService(GroupPositions):
    """All groups of this broker.

    Every method that answers a client returns once what the answer rests on is durable; `heartbeat` alone rests on
    nothing that must last. Call `start` before the first request and keep `run` running.
    """

    def __init__(
        self,
        config: GroupConfig,
        logs: CoordinatorLogs,
        topics: TopicView,
        clock: Clock,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.runtime: GroupRuntime = CoordinatorRuntime(GROUP_TOPIC, logs, clock, GroupRecords(), self)
        """Loads and unloads the partitions."""
        super().__init__(GroupShards(self.runtime, topics, clock), config, topics)
        self._clock = clock
        self._new_id = new_id
        self._effects = Effects(self.runtime)
        self._closed = False
        self.consumers = ConsumerGroups(config, self._shards, lambda: topics.image, clock, new_id, self._effects)

    async def start(self) -> None:
        """Load every partition that has a log; the groups of an unreadable one answer COORDINATOR_NOT_AVAILABLE."""
        self.consumers.start()
        await self.runtime.load_all()

    def loaded(self, shard: GroupShard) -> None:
        """Members come back with their sessions started over (as in Kafka)."""
        now_ms = self._clock.now_ms()
        for group_id, group in list(shard.state.groups.items()):
            for member in group_members(group).values():
                self.runtime.set_timer(
                    TimerKey(TimerKind.SESSION, group_id, member.member_id), member.session_timeout_ms
                )
            decision = rebalance.make_fit(group_id, group, self.config, now_ms)
            self._take(shard, group_id, decision, lambda: "it is larger than group.max.size allows")
        self.consumers.loaded(shard)
        if self._forgets_deleted:
            self._shards.forget_deleted_topics_in(shard)

    def unloading(self, shard: GroupShard, code: ErrorCode) -> None:
        """Answer the requests that wait in a shard with `code`: their members join again, wherever it is loaded."""
        self._effects.unloading(shard, code)

    def id_of(self, timer: TimerKey) -> str:
        """The group that a timer belongs to."""
        return timer.group_id

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the sessions and rebalances, and forget what is past its retention."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.runtime.serve)
            nursery.start_soon(self._sweep)
            task_status.started()

    def close(self) -> None:
        """Send everybody who waits away (NOT_COORDINATOR, so that they look for one), for the broker is to stop."""
        self._closed = True
        self._effects.answer_all(ErrorCode.NOT_COORDINATOR)

    def group_partition(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds the group."""
        return self.runtime.partition_for(group_id)

    async def join(self, command: Join) -> JoinReply:
        """JoinGroup; waits for the other members."""
        asked = self.ask_join(command)
        if isinstance(asked, Deferred):
            return await asked.wait()
        return asked if isinstance(asked, JoinReply) else await asked

    def ask_join(self, command: Join) -> JoinReply | Deferred[JoinReply] | Coroutine[Any, Any, JoinReply]:
        """As `join`, for who has something else to do than to wait, where there is something to wait for."""
        if not command.group_id:
            return JoinReply(command.member_id, ErrorCode.INVALID_GROUP_ID)
        if self._closed:
            return JoinReply(command.member_id, ErrorCode.NOT_COORDINATOR)
        shard = self._shards.of(command.group_id)
        if shard.refusal:
            return JoinReply(command.member_id, shard.refusal)
        try:
            if command.group_id in shard.state.consumers and not self.consumers.make_way(shard, command.group_id):
                return unless_refused(self.consumers.join(shard, command), command.refused)
            group = shard.state.group(command.group_id)
            new_member_id = command.member_id or intern(
                f"{command.group_instance_id or command.client_id}-{self._new_id()}"
            )
            decision = join.join(group, command, new_member_id, self.config, self._clock.now_ms())
            return self._answer(
                shard,
                command.group_id,
                decision,
                self._effects.joins,
                command.member_id,
                partial(notes.joining, command, new_member_id),
            )
        except LogWriteFailed as failed:
            return command.refused(coordinator_error(failed.code))

    async def sync(self, command: Sync) -> SyncReply:
        """SyncGroup; waits for the leader's."""
        asked = self.ask_sync(command)
        if isinstance(asked, Deferred):
            return await asked.wait()
        return asked if isinstance(asked, SyncReply) else await asked

    def ask_sync(self, command: Sync) -> SyncReply | Deferred[SyncReply] | Coroutine[Any, Any, SyncReply]:
        """As `sync`, for who has something else to do than to wait, where there is something to wait for."""
        if not command.group_id:
            return SyncReply(ErrorCode.INVALID_GROUP_ID)
        if self._closed:
            return SyncReply(ErrorCode.NOT_COORDINATOR)
        shard = self._shards.find(command.group_id)
        if shard is None:
            return SyncReply(ErrorCode.UNKNOWN_MEMBER_ID)
        if shard.refusal:
            return SyncReply(shard.refusal)
        try:
            if command.group_id in shard.state.consumers:
                return unless_refused(self.consumers.sync(shard, command), SyncReply)
            group = shard.state.group(command.group_id)
            decision = classic.sync(group, command, self._clock.now_ms())
            return self._answer(
                shard, command.group_id, decision, self._effects.syncs, command.member_id, notes.syncing
            )
        except LogWriteFailed as failed:
            return SyncReply(coordinator_error(failed.code))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat; its answer promises nothing, so it waits for no disk."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        shard = self._shards.find(group_id)
        if shard is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if shard.refusal:
            return shard.refusal
        if (consumers := shard.state.consumers.get(group_id)) is not None:
            return self.consumers.beat(consumers, member_id, instance_id, generation)
        group = shard.state.group(group_id)
        error = classic.heartbeat(group, member_id, instance_id, generation)
        if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._session(group_id, group_members(group)[member_id])
        return error

    async def leave(self, group_id: str, names: Sequence[MemberName]) -> tuple[ErrorCode, list[ErrorCode]]:
        """LeaveGroup: an error for the whole, and one per member in the order of `names`."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, []
        shard = self._shards.find(group_id)
        if shard is None:
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(names)
        if group_id in shard.state.consumers:
            return await self.consumers.leave(shard, group_id, names)
        if shard.refusal:
            return shard.refusal, []
        decision = classic.leave(group_id, shard.state.group(group_id), tuple(names), self._clock.now_ms())
        assert isinstance(decision.reply, LeaveReply)
        try:
            self._take(shard, group_id, decision, partial(notes.leaving, names, decision.reply.errors))
        except LogWriteFailed as failed:
            return coordinator_error(failed.code), []
        if refused := await shard.settled(shard.log.newest):
            return coordinator_error(refused), []
        return ErrorCode.NONE, list(decision.reply.errors)

    def _take(self, shard: GroupShard, group_id: str, decision: ClassicDecision, cause: Callable[[], str]) -> None:
        """Carry out a decision, and log what came of it; its reply waits for the log's end.

        `cause` is for the log, where the decision starts a rebalance. Raises LogWriteFailed, and has done nothing then.
        """
        (change,) = decision.then
        before, after = shard.state.group(group_id), change.group
        assert after is not None
        self._effects.carry_out(shard, group_id, decision)
        if not notes.goes_on(before, after):
            if isinstance(before, CompletingRebalance) and isinstance(after, Stable):
                self.tallies.completed_rebalances += 1
            if logger.isEnabledFor(logging.INFO) and (told := notes.story(before, after, cause)):
                logger.info("group %s: %s", group_id, told)

    def _answer(
        self,
        shard: GroupShard,
        group_id: str,
        decision: ClassicDecision,
        parking: Parking[ReplyT],
        asked_as: str,
        cause: Callable[[], str],
    ) -> ReplyT | Deferred[ReplyT] | Coroutine[Any, Any, ReplyT]:
        """Carry out the decision and return its reply; without one it waits for the decision of another request.

        Raises LogWriteFailed.
        """
        if decision.reply is not None:
            reply: ReplyT = decision.reply  # type: ignore[assignment]
            self._take(shard, group_id, decision, cause)
            return self._when_settled(shard, reply, parking, asked_as)
        (change,) = decision.then
        group = change.group
        asked = parking.park(shard, group_id, change.parked_as, asked_as)
        if (
            group is not None
            and not (decision.log or change.timers or change.answers)
            and type(group) is type(shard.state.group(group_id))
        ):
            shard.state.put(group_id, group)  # one more waits for the others, as nearly always
            return asked
        try:
            self._take(shard, group_id, decision, cause)
        except BaseException:
            asked.abandon()
            raise
        return asked.now() if asked.may_leave else asked

    def _when_settled(
        self, shard: GroupShard, reply: ReplyT, parking: Parking[ReplyT], asked_as: str
    ) -> ReplyT | Coroutine[Any, Any, ReplyT]:
        """The reply, which may leave once all that is in the log is durable."""
        ticket = shard.log.newest
        if ticket.is_durable:
            return reply
        return settled(shard, ticket, reply, partial(parking.refused, asked_as))

    def _session(self, group_id: str, member: Member) -> None:
        """Start the member's session over."""
        self.runtime.set_timer(TimerKey(TimerKind.SESSION, group_id, member.member_id), member.session_timeout_ms)

    async def expire(self, timer: TimerKey) -> None:
        """A timer went off. Where the log refuses what it decides, it goes off again."""
        shard = self._shards.of(timer.group_id)
        try:
            if (consumers := shard.state.consumers.get(timer.group_id)) is not None:
                self.consumers.expire(shard, consumers, timer)
            else:
                self._expire_classic(shard, timer)
        except LogWriteFailed as failed:
            logger.warning(
                "group %s: %s timer could not act, will try again: %s", timer.group_id, timer.kind.value, failed
            )
            self.runtime.set_timer(timer, RETRY_MS)

    def _expire_classic(self, shard: GroupShard, key: TimerKey) -> None:
        group = shard.state.group(key.group_id)
        now_ms = self._clock.now_ms()
        match key.kind:
            case TimerKind.SESSION:
                decision = rebalance.expire_session(key.group_id, group, key.member_id, now_ms)
            case TimerKind.JOIN:
                decision = rebalance.expire_join(key.group_id, group, self.config, now_ms)
            case TimerKind.SYNC:
                decision = rebalance.expire_sync(key.group_id, group, now_ms)
            case TimerKind.REBALANCE | TimerKind.CLASSIC_JOIN | TimerKind.CLASSIC_SYNC:
                return
        self._take(shard, key.group_id, decision, partial(notes.expiring, key.kind, key.member_id, group))

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(self.config.offsets_retention_check_interval_ms / 1000)
            for count in self._shards.forget_expired(self.config.offsets_retention_minutes * 60_000):
                self.tallies.expired_offsets += count
                await trio.lowlevel.checkpoint()
