"""Which sender may act as a member of a consumer group, and how members leave (KIP-848)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fencepost.coordinator.group.consumer.context import GroupContext
from fencepost.coordinator.group.consumer.group import ConsumerGroup, count_names, count_regex
from fencepost.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NOTHING,
    NOTHING_OWNED,
    ConsumerMember,
    is_owned,
    with_epoch,
    without_epochs,
)
from fencepost.coordinator.group.consumer.reconcile import Reported
from fencepost.coordinator.group.consumer.records import (
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    MemberRecord,
    RegexRecord,
    TargetRecord,
)
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.group.consumer.topics import metadata_hash
from fencepost.protocol.errors import ErrorCode


def known_member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """The member. Raises Refused with UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    return member


def holder_of(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """The static member of an instance id, which must be this member. Raises Refused."""
    member = group.static_member(instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        text = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, text)
    return member


def find_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The member by its id, or by its instance id if it has one. Raises Refused."""
    return known_member(group, member_id) if instance_id is None else holder_of(group, member_id, instance_id)


def check_epoch(member: ConsumerMember, epoch: int, reported: Reported | None) -> None:
    """Check that a heartbeat shows the member's epoch.

    The previous epoch is accepted too, because the answer with the new one may be lost; but only if the member reports
    no partition that is not assigned to it now. Raises Refused with FENCED_MEMBER_EPOCH: it must drop all partitions
    and join again.
    """
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    is_previous = epoch < member.epoch and epoch == member.previous_epoch
    if is_previous and reported is not None and is_owned(reported, member.assigned):
        return
    kind = "greater" if epoch > member.epoch else "smaller"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {kind} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def check_size(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    """Check that the group is not full. Raises Refused with GROUP_MAX_SIZE_REACHED."""
    if len(group.members) >= max_size and member_id not in group.members:
        text = f"The consumer group has reached its maximum capacity of {max_size} members."
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, text)


def take_static_place(
    context: GroupContext, member_id: str, instance_id: str, by_consumer_protocol: bool
) -> ConsumerMember:
    """The member that joins with an instance id: a new one, or the successor of the former member with that id.

    A former member of the consumer protocol must have left first (epoch -2): two processes with the same instance id
    would fence each other without end. Raises Refused with UNRELEASED_INSTANCE_ID.
    """
    group = context.group
    former = group.static_member(instance_id)
    if former is None:
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)
    if by_consumer_protocol and former.classic is None and former.epoch != LEAVE_STATIC_EPOCH:
        text = (
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
        )
        raise Refused(ErrorCode.UNRELEASED_INSTANCE_ID, text + f"is owned by {former.member_id} member.")
    successor = replace(former, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    remove(context, former.member_id)
    context.log.append(MemberRecord(group.group_id, member_id, successor))
    context.log.append(TargetRecord(group.group_id, member_id, group.target.get(former.member_id, NOTHING)))
    context.log.append(CurrentRecord(group.group_id, member_id, successor))
    return successor


def remove(context: GroupContext, member_id: str) -> None:
    """Write the tombstones of a member."""
    group_id = context.group.group_id
    context.log.append(CurrentRecord(group_id, member_id, None))
    context.log.append(TargetRecord(group_id, member_id, None))
    context.log.append(MemberRecord(group_id, member_id, None))


def leave_temporarily(context: GroupContext, member: ConsumerMember) -> None:
    """A static member leaves temporarily: it keeps its partitions until its session expires."""
    assigned = with_epoch(without_epochs(member.assigned), JOIN_EPOCH)
    away = replace(member, epoch=LEAVE_STATIC_EPOCH, assigned=assigned, revoking=NOTHING_OWNED)
    context.log.append(CurrentRecord(context.group.group_id, member.member_id, away))


def drop_members(context: GroupContext, members: Sequence[ConsumerMember]) -> None:
    """Remove members and raise the epoch, so that the next heartbeat assigns their partitions to others."""
    group = context.group
    for member in members:
        remove(context, member.member_id)
    topics = dict(group.topics)
    for regex in _unused_regexes(group, members):
        context.log.append(RegexRecord(group.group_id, regex, None))
        if regex in group.resolved:
            count_regex(topics, group.resolved[regex].topics, -1)
    for member in members:
        count_names(topics, member.topics, -1)
    hashed = metadata_hash(topics, context.view.image)
    context.log.append(EpochRecord(group.group_id, GroupEpoch(group.epoch + 1, hashed)))
    context.stop_timers(member.member_id for member in members)


def _unused_regexes(group: ConsumerGroup, members: Iterable[ConsumerMember]) -> list[str]:
    """The regular expressions that only these members subscribe to."""
    counts: dict[str, int] = {}
    for member in members:
        if member.regex:
            counts[member.regex] = counts.get(member.regex, 0) + 1
    return [regex for regex, leaving in counts.items() if group.regexes.get(regex, 0) == leaving]
