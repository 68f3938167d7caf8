"""Groups of the classic protocol: runs their decisions against the shards of the group coordinator."""

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from sys import intern
from typing import Any, TypeVar

from fencepost.coordinator.deferred import Deferred
from fencepost.coordinator.group import classic, join, notes, rebalance
from fencepost.coordinator.group.commands import Join, JoinReply, LeaveReply, MemberName, Sync, SyncReply
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer_service import ConsumerGroups
from fencepost.coordinator.group.decision import ClassicDecision
from fencepost.coordinator.group.effects import Effects
from fencepost.coordinator.group.parking import Parking, settled
from fencepost.coordinator.group.shards import GroupShard, GroupShards
from fencepost.coordinator.group.state import CompletingRebalance, Group, Member, Stable, group_members
from fencepost.coordinator.group.timers import SESSION, TimerKey, TimerKind, new_key
from fencepost.coordinator.ports import Clock, LogWriteFailed, coordinator_error
from fencepost.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

ReplyT = TypeVar("ReplyT")


class ClassicGroups:
    """Serves the requests of members of the classic protocol, also of those in a consumer group."""

    def __init__(
        self,
        config: GroupConfig,
        shards: GroupShards,
        effects: Effects,
        consumers: ConsumerGroups,
        clock: Clock,
        new_id: Callable[[], str],
        tallies: notes.Tallies,
    ) -> None:
        self.config = config
        self._shards = shards
        self._set_timer = shards.runtime.set_timer
        self._effects = effects
        self._consumers = consumers
        self._clock = clock
        self._new_id = new_id
        self._tallies = tallies

    def loaded(self, shard: GroupShard) -> None:
        now_ms = self._clock.now_ms()
        for group_id, group in list(shard.state.groups.items()):
            for member in group_members(group).values():
                self._session(group_id, member)
            decision = rebalance.rebalance_if_too_large(group_id, group, self.config, now_ms)
            self._carry_out(shard, group_id, group, decision, lambda: "it is larger than group.max.size allows")

    async def join(self, command: Join) -> JoinReply:
        """JoinGroup; waits until the other members have joined."""
        answer = self.ask_join(command)
        if isinstance(answer, Deferred):
            return await answer.wait()
        return answer if isinstance(answer, JoinReply) else await answer

    def ask_join(self, command: Join) -> JoinReply | Deferred[JoinReply] | Coroutine[Any, Any, JoinReply]:
        """As `join`, without waiting: the reply if it is ready, else a Deferred or a coroutine for it."""
        if not command.group_id:
            return JoinReply(command.member_id, ErrorCode.INVALID_GROUP_ID)
        if self._effects.closed:
            return JoinReply(command.member_id, ErrorCode.NOT_COORDINATOR)
        shard = self._shards.of(command.group_id)
        if shard.refusal:
            return JoinReply(command.member_id, shard.refusal)
        if command.group_id in shard.state.shares:  # as Kafka's GroupMetadataManager.classicGroupJoin
            return JoinReply("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        try:
            is_consumer = command.group_id in shard.state.consumers
            if is_consumer and not self._consumers.replace_empty_group(shard, command.group_id):
                return self._consumers.join(shard, command)
            group = shard.state.group(command.group_id)
            new_member_id = command.member_id or intern(
                f"{command.group_instance_id or command.client_id}-{self._new_id()}"
            )
            decision = join.join(group, command, new_member_id, self.config, self._clock.now_ms())
            return self._answer(
                shard, command, group, decision, self._effects.joins, lambda: notes.joining(command, new_member_id)
            )
        except LogWriteFailed as failed:
            return command.refused(coordinator_error(failed.code))

    async def sync(self, command: Sync) -> SyncReply:
        """SyncGroup; waits for the leader's Sync."""
        answer = self.ask_sync(command)
        if isinstance(answer, Deferred):
            return await answer.wait()
        return answer if isinstance(answer, SyncReply) else await answer

    def ask_sync(self, command: Sync) -> SyncReply | Deferred[SyncReply] | Coroutine[Any, Any, SyncReply]:
        """As `sync`, without waiting: the reply if it is ready, else a Deferred or a coroutine for it."""
        if not command.group_id:
            return SyncReply(ErrorCode.INVALID_GROUP_ID)
        if self._effects.closed:
            return SyncReply(ErrorCode.NOT_COORDINATOR)
        shard = self._shards.find(command.group_id)
        if shard is None:
            return SyncReply(ErrorCode.UNKNOWN_MEMBER_ID)
        if shard.refusal:
            return SyncReply(shard.refusal)
        try:
            if command.group_id in shard.state.consumers:
                return self._consumers.sync(shard, command)
            group = shard.state.group(command.group_id)
            decision = classic.sync(group, command, self._clock.now_ms())
            return self._answer(shard, command, group, decision, self._effects.syncs, notes.syncing)
        except LogWriteFailed as failed:
            return SyncReply(coordinator_error(failed.code))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat; its answer need not be durable, so it does not wait for the disk."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        shard = self._shards.find(group_id)
        if shard is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if shard.refusal:
            return shard.refusal
        if (consumers := shard.state.consumers.get(group_id)) is not None:
            return self._consumers.classic_heartbeat(consumers, member_id, instance_id, generation)
        group = shard.state.group(group_id)
        error = classic.heartbeat(group, member_id, instance_id, generation)
        if error in classic.ALIVE:
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
            return await self._consumers.leave(shard, group_id, names)
        if shard.refusal:
            return shard.refusal, []
        group = shard.state.group(group_id)
        decision = classic.leave(group_id, group, tuple(names), self._clock.now_ms())
        assert isinstance(decision.reply, LeaveReply)
        errors = decision.reply.errors
        try:
            self._carry_out(shard, group_id, group, decision, lambda: notes.leaving(names, errors))
        except LogWriteFailed as failed:
            return coordinator_error(failed.code), []
        if refused := await shard.settled(shard.log.newest):
            return coordinator_error(refused), []
        return ErrorCode.NONE, list(errors)

    def _carry_out(
        self, shard: GroupShard, group_id: str, before: Group, decision: ClassicDecision, cause: Callable[[], str]
    ) -> None:
        """Carry out a decision about the group `before`, and log its result; its reply waits for the log's end.

        `cause` gives the logged reason if a rebalance starts. Raises LogWriteFailed; nothing has changed then.
        """
        (change,) = decision.then
        after = change.group
        assert after is not None
        self._effects.carry_out(shard, group_id, decision)
        if not (decision.log or change.timers) or notes.is_routine(before, after):
            return  # every decision that ends a phase or removes a member has a record or a timer
        if isinstance(before, CompletingRebalance) and isinstance(after, Stable):
            self._tallies.completed_rebalances += 1
        if logger.isEnabledFor(logging.INFO) and (text := notes.note_on(before, after, cause())):
            logger.info("group %s: %s", group_id, text)

    def _answer(
        self,
        shard: GroupShard,
        command: Join | Sync,
        group: Group,
        decision: ClassicDecision,
        parking: Parking[ReplyT],
        cause: Callable[[], str],
    ) -> ReplyT | Deferred[ReplyT] | Coroutine[Any, Any, ReplyT]:
        """Carry out the decision and return its reply; without one, the request waits for another one's decision.

        Raises LogWriteFailed.
        """
        group_id = command.group_id
        if decision.reply is not None:
            reply: ReplyT = decision.reply  # type: ignore[assignment]
            self._carry_out(shard, group_id, group, decision, cause)
            return self._when_settled(shard, reply, parking, command.member_id)
        (change,) = decision.then
        parked = parking.park(shard, group_id, change.parked_as, command.member_id)
        try:
            self._carry_out(shard, group_id, group, decision, cause)
        except BaseException:
            parked.abandon()
            raise
        return parked.now() if parked.is_complete and parked.is_sendable else parked

    def _when_settled(
        self, shard: GroupShard, reply: ReplyT, parking: Parking[ReplyT], request_member_id: str
    ) -> ReplyT | Coroutine[Any, Any, ReplyT]:
        ticket = shard.log.newest
        if ticket.is_durable:
            return reply
        return settled(shard, ticket, reply, partial(parking.refused, request_member_id))

    def _session(self, group_id: str, member: Member) -> None:
        self._set_timer(new_key(TimerKey, (SESSION, group_id, member.member_id)), member.session_timeout_ms)

    def expire(self, shard: GroupShard, key: TimerKey) -> None:
        """A timer of a group expired. Raises LogWriteFailed."""
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
        self._carry_out(shard, key.group_id, group, decision, lambda: notes.expiring(key.kind, key.member_id, group))
