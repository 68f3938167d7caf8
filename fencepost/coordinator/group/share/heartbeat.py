"""ShareGroupHeartbeat as a decision: join, heartbeat, leave (KIP-932; GroupMetadataManager.shareGroupHeartbeat).

There is no step in which a member gives partitions back: it gets its target at once, for several members may have the
same partition.
"""

from dataclasses import replace

from fencepost.coordinator.decision import Decision, ReplyT
from fencepost.coordinator.group.assignors import simple
from fencepost.coordinator.group.assignors.spec import MemberSpec
from fencepost.coordinator.group.consumer.group import Subscribers, count_names
from fencepost.coordinator.group.consumer.member import JOIN_EPOCH, NOTHING, Assignment
from fencepost.coordinator.group.consumer.records import GroupEpoch, TargetEpoch
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.group.consumer.requests import HeartbeatReply
from fencepost.coordinator.group.consumer.target import is_due
from fencepost.coordinator.group.consumer.topics import metadata_hash, topic_ids
from fencepost.coordinator.group.decision import DecisionBuilder, GroupChange, GroupDecision
from fencepost.coordinator.group.share.group import ShareGroup
from fencepost.coordinator.group.share.member import ShareMember
from fencepost.coordinator.group.share.records import (
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
)
from fencepost.coordinator.group.share.requests import ShareHeartbeat
from fencepost.coordinator.group.timers import SetTimer, TimerKind
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.share.group_config import ShareGroupConfig
from fencepost.protocol.errors import ErrorCode


class ShareContext(DecisionBuilder):
    """One decision about a share group while it is made: its inputs, and its records so far.

    All steps see the group as it was before; it changes when the records are applied.
    """

    __slots__ = ("config", "group", "image", "now_ms", "settings")

    def __init__(self, group: ShareGroup, image: MetadataImage, config: ShareGroupConfig, now_ms: int) -> None:
        super().__init__(group.group_id)
        self.group = group
        self.image = image
        self.config = config
        self.settings = config.of_group(image.group_config(group.group_id))
        self.now_ms = now_ms

    def decided(self, reply: ReplyT) -> GroupDecision[ReplyT]:
        return Decision(reply, tuple(self.log), (GroupChange(timers=tuple(self.timers)),))


def sender(context: ShareContext, request: ShareHeartbeat) -> tuple[ShareMember, ShareMember]:
    """The member that sent the request, before and after it; a new one if it joins. Raises Refused."""
    group, member_id, limit = context.group, request.member_id, context.config.group_share_max_size
    member = group.members.get(member_id)
    if member is None and len(group.members) >= limit:
        text = f"The share group has reached its maximum capacity of {limit} members."
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
    if member is None and request.member_epoch == JOIN_EPOCH:
        member = ShareMember(member_id=member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    _check_epoch(member, request.member_epoch)
    updated = replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topics=member.topics if request.topics is None else frozenset(request.topics),
        client_id=request.client_id,
        client_host=request.client_host,
    )
    return member, updated


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Check that a heartbeat shows the member's epoch, or the one before: the answer with the new one may be lost.

    Raises Refused with FENCED_MEMBER_EPOCH: it must drop all partitions and join again.
    (Kafka's throwIfShareGroupMemberEpochIsInvalid)
    """
    if epoch in (JOIN_EPOCH, member.epoch) or member.previous_epoch == epoch < member.epoch:
        return
    kind, previous = "greater", ""
    if epoch < member.epoch:
        kind, previous = "smaller", f", and it does not match the previous member epoch ({member.previous_epoch})"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {kind} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}){previous}. The member must abandon all its partitions and rejoin.",
    )


def subscribed(group: ShareGroup, old: ShareMember, new: ShareMember) -> dict[str, Subscribers]:
    """The topics of all members, with `new` in the place of `old`."""
    topics = dict(group.topics)
    if old.member_id in group.members:
        count_names(topics, old.topics, -1)
    count_names(topics, new.topics, 1)
    return topics


def heartbeat(context: ShareContext, request: ShareHeartbeat) -> HeartbeatReply:
    """A member joins, or sends a heartbeat; in both cases the reply may contain a new assignment. Raises Refused."""
    settings = context.settings
    old, new = sender(context, request)
    if new != old:
        context.log.append(ShareMemberRecord(context.group_id, new.member_id, new))
    epoch, bumped = _epoch(context, old, new)
    target_epoch, target = _assign(context, epoch, new)
    after = _reconciled(context, new, target_epoch, target, bumped)
    context.timers.append(SetTimer(TimerKind.SESSION, settings.session_timeout_ms, new.member_id))
    shows_assignment = request.member_epoch == JOIN_EPOCH or request.topics is not None
    shows_assignment = shows_assignment or after.assigned != old.assigned
    return HeartbeatReply(
        member_id=new.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        assignment=after.assigned if shows_assignment else None,
    )


def _epoch(context: ShareContext, old: ShareMember, new: ShareMember) -> tuple[int, bool]:
    """The group's epoch, and whether this decision raises it.

    A changed subscription, changed topics and partitions that have been initialised since the last assignment raise it.
    """
    group = context.group
    bump = new.topics != old.topics
    if group.assignment_epoch >= group.epoch:
        bump = bump or group.assignment_pending
    if not bump and group.topics_checked:
        return group.epoch, False
    found = metadata_hash(subscribed(group, old, new), context.image)
    if not bump and found == group.metadata_hash:
        return group.epoch, False
    context.log.append(ShareEpochRecord(group.group_id, GroupEpoch(group.epoch + 1, found)))
    return group.epoch + 1, True


def _assign(context: ShareContext, epoch: int, updated: ShareMember) -> tuple[int, Assignment]:
    """The epoch of the target assignment and the member's part of it; computes a new target if one is due."""
    group, image = context.group, context.image
    interval_ms = context.settings.assignment_interval_ms
    due = is_due(group.assignment_timestamp_ms, interval_ms, context.now_ms)
    if group.assignment_epoch >= epoch or not due:
        return group.assignment_epoch, group.target.get(updated.member_id, NOTHING)
    specs = {
        key: MemberSpec(None, topic_ids(member.topics, image), group.target.get(key, NOTHING))
        for key, member in {**group.members, updated.member_id: updated}.items()
    }
    subscriptions = {spec.topic_ids for spec in specs.values()}
    begun = group.partitions.assignable
    assignable = {
        topic_id: begun.get(topic_id, frozenset()) & frozenset(range(image.topics_by_id[topic_id].partitions))
        for topic_id in sorted(frozenset().union(*subscriptions))
    }
    found = simple.assign(specs, len(subscriptions) == 1, assignable)
    for member_id, given in found.items():
        if group.target.get(member_id) != given:
            context.log.append(ShareTargetRecord(group.group_id, member_id, given))
    context.log.append(ShareTargetEpochRecord(group.group_id, TargetEpoch(epoch, context.now_ms)))
    return epoch, found[updated.member_id]


def _reconciled(
    context: ShareContext, member: ShareMember, target_epoch: int, target: Assignment, bumped: bool
) -> ShareMember:
    """The member with the topics of its target that it subscribes to (Kafka's ShareGroupAssignmentBuilder)."""
    if not bumped and member.epoch == target_epoch:
        return member
    wanted = topic_ids(member.topics, context.image)
    assigned = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in wanted}
    after = replace(member, assigned=assigned)
    if member.epoch != target_epoch:
        after = replace(after, epoch=target_epoch, previous_epoch=member.epoch)
    if after != member:
        context.log.append(ShareCurrentRecord(context.group_id, after.member_id, after))
    return after


def leave(context: ShareContext, request: ShareHeartbeat) -> HeartbeatReply:
    """A member leaves (epoch -1). Raises Refused."""
    member = context.group.members.get(request.member_id)
    if member is None:
        text = f"Member {request.member_id} is not a member of group {context.group_id}."
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, text)
    drop(context, member)
    return HeartbeatReply(member_id=member.member_id, member_epoch=request.member_epoch)


def drop(context: ShareContext, member: ShareMember) -> None:
    """Remove a member and raise the epoch, so that the next heartbeat assigns its partitions to others.

    With the last member the assignment is that of the new epoch, so the next to join waits for no interval.
    (Kafka's shareGroupFenceMember)
    """
    group, group_id, member_id = context.group, context.group_id, member.member_id
    topics = dict(group.topics)
    count_names(topics, member.topics, -1)
    epoch = group.epoch + 1
    context.log += [
        ShareCurrentRecord(group_id, member_id, None),
        ShareTargetRecord(group_id, member_id, None),
        ShareMemberRecord(group_id, member_id, None),
        ShareEpochRecord(group_id, GroupEpoch(epoch, metadata_hash(topics, context.image))),
    ]
    if len(group.members) == 1:
        context.log.append(ShareTargetEpochRecord(group_id, TargetEpoch(epoch)))
    context.end_sessions([member_id])
