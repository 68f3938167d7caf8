"""Share groups (KIP-932): runs their decisions against the shards of the group coordinator."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from fencepost.coordinator.group.consumer.member import JOIN_EPOCH
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.group.consumer.requests import HeartbeatReply
from fencepost.coordinator.group.decision import GroupDecision
from fencepost.coordinator.group.effects import Effects
from fencepost.coordinator.group.notes import counted_members
from fencepost.coordinator.group.shards import GroupShard, GroupShards
from fencepost.coordinator.group.share import heartbeat, view
from fencepost.coordinator.group.share.group import ShareGroup
from fencepost.coordinator.group.share.heartbeat import ShareContext
from fencepost.coordinator.group.share.partitions import new_state_epoch
from fencepost.coordinator.group.share.requests import ShareHeartbeat, check
from fencepost.coordinator.group.share_partitions import BegunPartitions, Plan
from fencepost.coordinator.group.timers import SetTimer, TimerKey, TimerKind
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.ports import Clock, LogWriteFailed, coordinator_error
from fencepost.coordinator.share.group_config import ShareGroupConfig
from fencepost.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


class ShareGroups:
    """The share groups of this broker; every method that answers returns once the answer may be sent."""

    def __init__(
        self,
        config: ShareGroupConfig,
        shards: GroupShards,
        image: Callable[[], MetadataImage],
        clock: Clock,
        effects: Effects,
        partitions: BegunPartitions,
    ) -> None:
        self.config = config
        """Replaced when settings are altered at run time."""
        self.partitions = partitions
        """The share partitions of the groups, and their offsets."""
        self._shards = shards
        self._image = image
        self._clock = clock
        self._effects = effects

    def loaded(self, shard: GroupShard) -> None:
        """Restart the sessions of all members."""
        for group_id, group in shard.state.shares.items():
            timeout_ms = self._context(group).settings.session_timeout_ms
            timers = [SetTimer(TimerKind.SESSION, timeout_ms, member_id) for member_id in group.members]
            self._effects.set_timers(group_id, timers)

    def _context(self, group: ShareGroup) -> ShareContext:
        return ShareContext(group, self._image(), self.config, self._clock.now_ms())

    async def heartbeat(self, request: ShareHeartbeat) -> HeartbeatReply:
        """ShareGroupHeartbeat.

        If the member subscribes to partitions that the group has not begun, they are begun first. So a member that
        joins gets its partitions with the first reply.
        """
        try:
            check(request)
            if not request.leaves:
                await self._begin_partitions(request)
            shard = self._shard(request.group_id)
            context = self._context(self._find(shard, request))
            if request.leaves:
                reply = heartbeat.leave(context, request)
            else:
                reply = heartbeat.heartbeat(context, request)
            self._carry_out(shard, context.group, context.decided(reply), _why(context, request))
            ticket = shard.log.newest
        except Refused as refusal:
            logger.debug("share group %s: member %s: %s", request.group_id, request.member_id, refusal)
            return HeartbeatReply(error=refusal.code, text=str(refusal))
        except LogWriteFailed as failed:
            return HeartbeatReply(error=coordinator_error(failed.code))
        refused = await shard.settled(ticket)
        return HeartbeatReply(error=coordinator_error(refused)) if refused else reply

    async def _begin_partitions(self, request: ShareHeartbeat) -> None:
        """Have the share coordinator initialise what the group needs. Raises Refused and LogWriteFailed."""
        if self._plan(request) is not None:
            await self.partitions.begin(request.group_id, lambda: self._plan(request))

    def _plan(self, request: ShareHeartbeat) -> Plan | None:
        """What must begin before this heartbeat is answered. Raises Refused."""
        context = self._context(self._find(self._shard(request.group_id), request))
        old, new = heartbeat.sender(context, request)
        group, retry_ms = context.group, self.config.group_share_initialize_retry_interval_ms
        is_known = group.members.get(old.member_id) is old and new.topics is old.topics
        if is_known and group.has_begun_all(context.image, context.now_ms, retry_ms):
            return None
        topics = heartbeat.subscribed(group, old, new)
        missing = group.partitions.missing(topics, context.image, context.now_ms, retry_ms)
        epoch = new_state_epoch(group.epoch, context.now_ms)
        return Plan(missing, group.partitions.first_states(group.group_id, epoch, missing)) if missing else None

    def _shard(self, group_id: str) -> GroupShard:
        shard = self._shards.of(group_id)
        if shard.refusal:
            raise Refused(shard.refusal, "The coordinator of this group is not active here.")
        return shard

    @staticmethod
    def _find(shard: GroupShard, request: ShareHeartbeat) -> ShareGroup:
        """The group of the request; a new one if a member joins. Raises Refused with GROUP_ID_NOT_FOUND."""
        group_id = request.group_id
        group = shard.state.shares.get(group_id)
        if group is not None:
            return group
        if shard.state.has_group(group_id):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if request.member_epoch != JOIN_EPOCH:
            kind = "Group" if request.leaves else "Share group"
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        return ShareGroup(group_id)

    def topics_changed(self, names: Sequence[str]) -> None:
        """Topics were created, grew or were deleted: their groups check the topics at their next heartbeat."""
        for _, group in self._shards.all_share_groups():
            if any(name in group.topics for name in names):
                group.topics_checked = False

    def describe(self, group_id: str) -> view.DescribedShareGroup:
        """ShareGroupDescribe of one group; GROUP_ID_NOT_FOUND for an unknown one or one of another type."""
        if not group_id:
            return view.DescribedShareGroup(group_id, ErrorCode.INVALID_GROUP_ID)
        shard = self._shards.find(group_id)
        group = None if shard is None else shard.state.shares.get(group_id)
        if group is not None:
            return view.describe(group, self._image())
        known = shard is not None and shard.state.has_group(group_id)
        text = f"Group {group_id} is not a share group." if known else f"Group {group_id} not found."
        return view.DescribedShareGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, text)

    def expire(self, shard: GroupShard, group: ShareGroup, key: TimerKey) -> None:
        """A member's session expired: remove it. Raises LogWriteFailed."""
        member = group.members.get(key.member_id)
        if member is None or key.kind is not TimerKind.SESSION:
            return
        context = self._context(group)
        heartbeat.drop(context, member)
        why = f"member {member.member_id} is removed: it sent no heartbeat"
        self._carry_out(shard, group, context.decided(None), why)

    def _carry_out(self, shard: GroupShard, looked_at: ShareGroup, decision: GroupDecision[Any], why: str) -> None:
        """Carry out a decision about the group `looked_at`. Raises LogWriteFailed."""
        group_id, before = looked_at.group_id, looked_at.epoch
        self._effects.carry_out(shard, group_id, decision)
        group = shard.state.shares[group_id]
        group.topics_checked = True
        if group.epoch != before:
            logger.info("share group %s: epoch %d, %s: %s", group_id, group.epoch, counted_members(group.members), why)


def _why(context: ShareContext, request: ShareHeartbeat) -> str:
    """The reason for a heartbeat's decision, for the log."""
    if request.leaves:
        return f"member {request.member_id} left"
    if request.member_epoch == JOIN_EPOCH:
        return f"member {request.member_id} joins"
    return f"its partitions or the subscription of {request.member_id} changed"
