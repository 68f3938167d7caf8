"""Groups of the consumer protocol (KIP-848): runs their decisions against the shards of the group coordinator."""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from fencepost.coordinator.group.commands import Join, JoinReply, MemberName, Sync, SyncReply
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer import classic_members, heartbeat, migration, offsets, regexes, view
from fencepost.coordinator.group.consumer.context import GroupContext, View
from fencepost.coordinator.group.consumer.group import ConsumerGroup, tombstones
from fencepost.coordinator.group.consumer.member import JOIN_EPOCH, ConsumerMember, MemberState
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.group.consumer.requests import Heartbeat, HeartbeatReply, check
from fencepost.coordinator.group.decision import GroupDecision
from fencepost.coordinator.group.effects import Effects
from fencepost.coordinator.group.notes import counted_members
from fencepost.coordinator.group.parking import settled
from fencepost.coordinator.group.records import GroupRemoved
from fencepost.coordinator.group.shards import GroupShard, GroupShards
from fencepost.coordinator.group.state import Dead, Empty
from fencepost.coordinator.group.timers import SetTimer, TimerKey, TimerKind
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.ports import Clock, LogWriteFailed, Ticket, coordinator_error
from fencepost.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


PER_GROUP: Mapping[str, str] = MappingProxyType(
    {
        "consumer.assignment.interval.ms": "group_consumer_assignment_interval_ms",
        "consumer.heartbeat.interval.ms": "group_consumer_heartbeat_interval_ms",
        "consumer.session.timeout.ms": "group_consumer_session_timeout_ms",
    }
)
"""The settings of a single group, and the broker's setting that each overrides."""


class ConsumerGroups:
    """The consumer groups of this broker; every method that answers returns once the answer may be sent."""

    def __init__(
        self,
        config: GroupConfig,
        shards: GroupShards,
        image: Callable[[], MetadataImage],
        clock: Clock,
        new_id: Callable[[], str],
        effects: Effects,
    ) -> None:
        self.config = config
        """Replaced when settings are altered at run time."""
        self._shards = shards
        self._image = image
        self._clock = clock
        self._new_id = new_id
        self._effects = effects
        self._new_topics_at = 0

    def start(self) -> None:
        """Note the metadata offset of the existing topics, before any group is loaded."""
        self._new_topics_at = self._image().offset

    def loaded(self, shard: GroupShard) -> None:
        for group_id, group in shard.state.consumers.items():
            timers = []
            config = self._config_of(group_id)
            for member in group.members.values():
                timers.append(self._session(config, member.member_id))
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    delay_ms = member.rebalance_timeout_ms
                    timers.append(SetTimer(TimerKind.REBALANCE, delay_ms, member.member_id, member.epoch))
            self._effects.set_timers(group_id, timers)

    @staticmethod
    def _session(config: GroupConfig, member_id: str) -> SetTimer:
        return SetTimer(TimerKind.SESSION, config.group_consumer_session_timeout_ms, member_id)

    def _view(self, group_id: str) -> View:
        return View(self._image(), self._new_topics_at, self._config_of(group_id), self._clock.now_ms())

    def _config_of(self, group_id: str) -> GroupConfig:
        """The broker's settings, overridden by the group's own (`consumer.session.timeout.ms`, ...)."""
        own = self._image().group_config(group_id)
        known: dict[str, Any] = {
            PER_GROUP[name]: self._within(name, int(text)) for name, text in own.items() if name in PER_GROUP
        }
        return replace(self.config, **known) if known else self.config

    def _within(self, name: str, value: int) -> int:
        low, high = self.config.group_consumer_bounds.get(name, (value, value))
        return min(max(value, low), high)

    # ---- the consumer protocol

    async def heartbeat(self, request: Heartbeat) -> HeartbeatReply:
        reply = self.ask_heartbeat(request)
        return reply if isinstance(reply, HeartbeatReply) else await reply

    def ask_heartbeat(self, request: Heartbeat) -> HeartbeatReply | Coroutine[Any, Any, HeartbeatReply]:
        """As `heartbeat`; a coroutine only if the reply has to wait for the disk."""
        known = self._shards.find(request.group_id)
        if known is not None and not known.refusal:
            seen = self._view(request.group_id)
            unchanged = heartbeat.reply_if_unchanged(known.state.consumers.get(request.group_id), request, seen)
            if unchanged is not None:
                self._effects.set_timers(request.group_id, (self._session(seen.config, request.member_id),))
                ticket = known.log.newest
                return unchanged if ticket.is_durable else _settled(known, ticket, unchanged)
        try:
            check(request, self.config.group_consumer_assignors)
            shard = self._shards.of(request.group_id)
            if shard.refusal:
                raise Refused(shard.refusal, "The coordinator of this group is not active here.")
            context = GroupContext(ConsumerGroup(request.group_id), self._view(request.group_id))
            self._find(shard, context, request)
            if request.leaves:
                reply = heartbeat.leave(context, request)
            else:
                reply = heartbeat.heartbeat(context, request, request.member_id or self._new_id())
            decision = context.decided(reply)
            ticket = self._carry_out(shard, decision, _why(context, request), context.group, request.may_see)
        except Refused as refusal:
            logger.debug("group %s: member %s: %s", request.group_id, request.member_id, refusal)
            return HeartbeatReply(error=refusal.code, text=str(refusal))
        except LogWriteFailed as failed:
            return HeartbeatReply(error=coordinator_error(failed.code))
        return reply if ticket.is_durable else _settled(shard, ticket, reply)

    def _find(self, shard: GroupShard, context: GroupContext, request: Heartbeat) -> None:
        """Find the group of the request; if a member joins, create it or convert the classic one. Raises Refused."""
        group_id, joins = request.group_id, request.member_epoch == JOIN_EPOCH
        group = shard.state.consumers.get(group_id)
        classic = shard.state.group(group_id)
        if group is not None:
            context.group = group
        elif group_id in shard.state.shares:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        elif isinstance(classic, Dead):
            if not joins:
                kind = "Group" if request.leaves else "Consumer group"
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        elif not joins:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        elif isinstance(classic, Empty):
            context.log.append(GroupRemoved(group_id))
            context.stop_timers(classic.pending)
        else:
            migration.upgrade(context, classic)

    def topics_changed(self, names: Sequence[str], *, created: bool) -> None:
        """Topics were created, grew or were deleted: their groups check the topics at their next heartbeat."""
        if created:
            self._new_topics_at = self._image().offset
        for _, group in self._shards.all_consumer_groups():
            if any(name in group.topics for name in names):
                group.refresh_at_ms = 0

    def describe(self, group_id: str) -> view.DescribedConsumerGroup:
        """ConsumerGroupDescribe of one group; GROUP_ID_NOT_FOUND for an unknown or a classic one."""
        if not group_id:
            return view.DescribedConsumerGroup(group_id, ErrorCode.INVALID_GROUP_ID)
        shard = self._shards.find(group_id)
        group = None if shard is None else shard.state.consumers.get(group_id)
        if group is not None:
            return view.describe(group, self.config.group_consumer_assignors[0], self._image())
        known = shard is not None and shard.state.has_group(group_id)
        text = f"Group {group_id} is not a consumer group." if known else f"Group {group_id} not found."
        return view.DescribedConsumerGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, text)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether this sender may fetch offsets (OffsetFetch v9+); always NONE for a classic group."""
        shard = self._shards.find(group_id)
        group = None if shard is None else shard.state.consumers.get(group_id)
        return ErrorCode.NONE if group is None else offsets.check_fetch(group, member_id, member_epoch)

    # ---- classic members in consumer groups

    def replace_empty_group(self, shard: GroupShard, group_id: str) -> bool:
        """A classic member joins: remove an empty consumer group of that name, but not its offsets.

        Returns False if the consumer group has members: the classic member joins that group. Raises LogWriteFailed.
        """
        group = shard.state.consumers.get(group_id)
        if group is None:
            return True
        if group.members:
            return False
        shard.write(tombstones(group))
        logger.info("group %s: the empty consumer group becomes one of the classic protocol", group_id)
        return True

    def join(self, shard: GroupShard, command: Join) -> JoinReply | Coroutine[Any, Any, JoinReply]:
        """JoinGroup, to a consumer group with members. Raises LogWriteFailed."""
        context = GroupContext(shard.state.consumers[command.group_id], self._view(command.group_id))
        try:
            reply = classic_members.join(context, command, command.member_id or self._new_id())
        except Refused as refusal:
            return JoinReply(command.member_id, refusal.code)
        why = f"classic member {reply.member_id} joins"
        ticket = self._carry_out(shard, context.decided(reply), why, context.group)
        return reply if ticket.is_durable else settled(shard, ticket, reply, command.refused)

    def sync(self, shard: GroupShard, command: Sync) -> SyncReply | Coroutine[Any, Any, SyncReply]:
        """SyncGroup. Raises LogWriteFailed."""
        context = GroupContext(shard.state.consumers[command.group_id], self._view(command.group_id))
        try:
            reply = classic_members.sync(context, command)
        except Refused as refusal:
            return SyncReply(refusal.code)
        ticket = self._carry_out(shard, context.decided(reply), "", context.group)
        return reply if ticket.is_durable else settled(shard, ticket, reply, SyncReply)

    def classic_heartbeat(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        context = GroupContext(group, self._view(group.group_id))
        try:
            error = classic_members.heartbeat(context, member_id, instance_id, generation)
        except Refused as refusal:
            return refusal.code
        self._effects.set_timers(group.group_id, context.timers)
        return error

    async def leave(
        self, shard: GroupShard, group_id: str, names: Sequence[MemberName]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """LeaveGroup: an error for the whole, and one per member."""
        context = GroupContext(shard.state.consumers[group_id], self._view(group_id))
        errors = classic_members.leave(context, names)
        try:
            ticket = self._carry_out(shard, context.decided(errors), "classic members left", context.group)
        except LogWriteFailed as failed:
            return coordinator_error(failed.code), []
        if refused := await shard.settled(ticket):
            return coordinator_error(refused), []
        return ErrorCode.NONE, list(errors)

    # ---- timers and decisions

    def expire(self, shard: GroupShard, group: ConsumerGroup, key: TimerKey) -> None:
        """A member's timer expired: remove it, unless it did in time what it had to do. Raises LogWriteFailed."""
        member = group.members.get(key.member_id)
        if member is None or key.kind in (TimerKind.JOIN, TimerKind.SYNC):
            return
        if key.kind is TimerKind.REBALANCE and self._effects.awaited_epoch(key) != member.epoch:
            return
        context = GroupContext(group, self._view(group.group_id))
        migration.drop_or_downgrade(context, [member])
        self._carry_out(shard, context.decided(None), _expired(key.kind, member), group)

    def _carry_out(
        self,
        shard: GroupShard,
        decision: GroupDecision[Any],
        why: str,
        looked_at: ConsumerGroup,
        may_see: Callable[[str], bool] | None = None,
    ) -> Ticket:
        """Carry out a decision about the group `looked_at`; return the ticket that answers wait for.

        Raises LogWriteFailed.
        """
        group_id, before = looked_at.group_id, looked_at.epoch
        self._effects.carry_out(shard, group_id, decision)
        (change,) = decision.then
        group = shard.state.consumers.get(group_id)
        if change.group is not None:
            logger.info("group %s: the consumer group becomes one of the classic protocol: %s", group_id, why)
        elif group is not None:
            if change.refresh is not None:
                group.refresh_at_ms, group.refresh_epoch = change.refresh
            if group.epoch != before or why.startswith("member"):
                logger.info("group %s: epoch %d, %s: %s", group_id, group.epoch, counted_members(group.members), why)
        if group is not None and change.resolve:
            self._resolve(shard, group, change.resolve, may_see)
        return shard.log.newest

    def _resolve(
        self,
        shard: GroupShard,
        group: ConsumerGroup,
        expressions: frozenset[str],
        may_see: Callable[[str], bool] | None,
    ) -> None:
        """Match the group's regular expressions against the existing topics, and write the result."""
        seen = self._view(group.group_id)
        try:
            records = regexes.note_resolved(group, regexes.resolve(expressions, seen, may_see), seen)
            if records:
                shard.write(records)
        except (Refused, LogWriteFailed) as error:
            logger.warning("group %s: regular expressions could not be resolved: %s", group.group_id, error)


async def _settled(shard: GroupShard, ticket: Ticket, reply: HeartbeatReply) -> HeartbeatReply:
    refused = await shard.settled(ticket)
    return HeartbeatReply(error=coordinator_error(refused)) if refused else reply


def _why(context: GroupContext, request: Heartbeat) -> str:
    """The reason for a heartbeat's decision, for the log."""
    if request.leaves:
        return f"member {request.member_id} left"
    if request.member_epoch == JOIN_EPOCH:
        return f"member {request.member_id} joins"
    return f"its topics or the subscription of {request.member_id} changed"


def _expired(kind: TimerKind, member: ConsumerMember) -> str:
    causes = {
        TimerKind.SESSION: "it sent no heartbeat",
        TimerKind.REBALANCE: f"it did not give its partitions back within {member.rebalance_timeout_ms} ms",
        TimerKind.CLASSIC_JOIN: f"it did not rejoin within {member.rebalance_timeout_ms} ms",
        TimerKind.CLASSIC_SYNC: f"it did not fetch its assignment within {member.rebalance_timeout_ms} ms",
    }
    return f"member {member.member_id} is removed: {causes[kind]}"
