"""A group migrates from the classic to the consumer protocol and back while its members keep working (row G5).

Upgrade: a member of the consumer protocol joins a classic group of consumers. The classic members keep their
assignments and stay as classic members: the consumer group then answers their Joins, Syncs and heartbeats.
Downgrade: the last member of the consumer protocol leaves. The target assignment becomes that of a classic group, which
then rebalances.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TypeAlias

from fencepost.coordinator.group import rebalance
from fencepost.coordinator.group.commands import JoinAnswer, JoinReply, SyncAnswer, SyncReply
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer import embedded, fencing
from fencepost.coordinator.group.consumer.context import GroupContext
from fencepost.coordinator.group.consumer.group import ConsumerGroup, tombstones
from fencepost.coordinator.group.consumer.member import (
    NOTHING,
    Assignment,
    ClassicSide,
    ConsumerMember,
    MemberState,
    everything_of,
    with_epoch,
)
from fencepost.coordinator.group.consumer.records import (
    ConsumerRecord,
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    MemberRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.group.consumer.topics import metadata_hash
from fencepost.coordinator.group.records import GroupRemoved, saved
from fencepost.coordinator.group.state import Active, CompletingRebalance, Member, PreparingRebalance, Stable
from fencepost.coordinator.group.timers import SetTimer, TimerKind
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.protocol.errors import ErrorCode

Converted: TypeAlias = tuple[ConsumerMember, Assignment]
"""A classic member as a member of the consumer group, and its assignment."""


class MigrationPolicy(StrEnum):
    """The migrations allowed for a group with members (`group.consumer.migration.policy`)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"


def may_upgrade(config: GroupConfig) -> bool:
    """Whether a classic group may become a consumer group while it has members."""
    return config.group_consumer_migration_policy in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)


def may_downgrade(config: GroupConfig) -> bool:
    """Whether a consumer group may become a classic one while it has members."""
    return config.group_consumer_migration_policy in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


# ---- upgrade


def upgrade(context: GroupContext, classic: Active) -> None:
    """Convert a classic group to the context's (new) group. Raises Refused (GROUP_ID_NOT_FOUND) if it cannot be."""
    group_id, config, image = context.group.group_id, context.view.config, context.view.image
    if not may_upgrade(config):
        raise _cannot_upgrade(group_id, "online upgrade is disabled")
    if classic.protocol_type != embedded.PROTOCOL_TYPE:
        raise _cannot_upgrade(group_id, "the group does not use the consumer embedded protocol")
    if len(classic.members) > config.group_consumer_max_size:
        raise _cannot_upgrade(group_id, "the group size exceeds the consumer group maximum size")
    try:
        members = [_as_consumer(member, classic, image) for member in classic.members.values()]
        members = _with_what_they_give_up(members, classic, image)
    except embedded.Malformed as error:
        raise _cannot_upgrade(group_id, "the embedded consumer protocol is malformed") from error
    # Partitions without an owner, as in the middle of a rebalance, must be assigned, even if the joining member only
    # takes over an instance id with the same subscription. A different hash of the topics raises the epoch.
    hashed = 0 if _has_unassigned(members, image) else metadata_hash(_names(members), image)
    records = _creation(group_id, classic.generation, members, hashed)
    for record in records:
        context.group.apply(record)
    context.log.append(GroupRemoved(group_id))
    context.log += records
    _end_parked(context, classic)
    for member in classic.members.values():
        context.timers.append(SetTimer(TimerKind.SESSION, member.session_timeout_ms, member.member_id))
    context.timers += [SetTimer(kind, None, "") for kind in (TimerKind.JOIN, TimerKind.SYNC)]
    context.timers += [SetTimer(TimerKind.SESSION, None, pending_id) for pending_id in classic.pending]


def _cannot_upgrade(group_id: str, why: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {why}."
    )


def _metadata(member: Member, classic: Active) -> bytes:
    return member.metadata(classic.protocol if classic.protocol is not None else member.protocols[0][0])


def _as_consumer(member: Member, classic: Active, image: MetadataImage) -> Converted:
    """A classic member as a member of the consumer group, with its assignment. Raises Malformed and Refused."""
    subscription = embedded.read_subscription(_metadata(member, classic))
    given = embedded.read_assignment(member.assignment)
    if given.user_data:
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Cannot upgrade the classic group to consumer group because an unsupported custom assignor is in use. "
            "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade.",
        )
    target = embedded.by_id(given.partitions, image)
    made = ConsumerMember(
        member_id=member.member_id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        assigned=with_epoch(target, classic.generation),
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )
    return made, target


def _with_what_they_give_up(members: Sequence[Converted], classic: Active, image: MetadataImage) -> list[Converted]:
    """The members, with partitions that they may still read though the last generation assigned them to no member.

    A cooperative member (KIP-429) joins with its partitions, receives fewer, gives up the others and joins again: only
    then may other members have these. Kafka takes them as free from the beginning.
    """
    given = {(topic_id, at) for _, target in members for topic_id, all_ in target.items() for at in all_}
    claims: dict[tuple[bytes, int], tuple[int, str]] = {}
    for member, _ in members:
        subscription = embedded.read_subscription(_metadata(classic.members[member.member_id], classic))
        for topic_id, partitions in embedded.reported_of(subscription, image):
            for place in ((topic_id, at) for at in partitions if (topic_id, at) not in given):
                claims[place] = max(claims.get(place, (-2, "")), (subscription.generation, member.member_id))
    revoking: dict[str, dict[bytes, dict[int, int]]] = {}
    for (topic_id, at), (_, member_id) in claims.items():
        revoking.setdefault(member_id, {}).setdefault(topic_id, {})[at] = classic.generation
    return [
        (replace(member, state=MemberState.UNREVOKED_PARTITIONS, revoking=revoking[member.member_id]), target)
        if member.member_id in revoking
        else (member, target)
        for member, target in members
    ]


def _names(members: Sequence[Converted]) -> set[str]:
    return {name for member, _ in members for name in member.topics}


def _has_unassigned(members: Sequence[Converted], image: MetadataImage) -> bool:
    """Whether the members subscribe to a partition that is assigned to none of them."""
    given: dict[bytes, set[int]] = {}
    for _, target in members:
        for topic_id, partitions in target.items():
            given.setdefault(topic_id, set()).update(partitions)
    topics = (image.topics_by_name[name] for name in _names(members) if name in image.topics_by_name)
    return any(len(given.get(topic.topic_id, ())) < topic.partitions for topic in topics)


def _creation(group_id: str, epoch: int, members: Sequence[Converted], hashed: int) -> list[ConsumerRecord]:
    return [
        *(MemberRecord(group_id, member.member_id, member) for member, _ in members),
        EpochRecord(group_id, GroupEpoch(epoch, hashed)),
        *(TargetRecord(group_id, member.member_id, target) for member, target in members),
        TargetEpochRecord(group_id, TargetEpoch(epoch)),
        *(CurrentRecord(group_id, member.member_id, member) for member, _ in members),
    ]


def _end_parked(context: GroupContext, classic: Active) -> None:
    """Answer parked Joins and Syncs with REBALANCE_IN_PROGRESS: their members have to join again."""
    again = ErrorCode.REBALANCE_IN_PROGRESS
    if isinstance(classic, PreparingRebalance):
        context.answers += [JoinAnswer(member_id, JoinReply(member_id, again)) for member_id in classic.joined]
    elif isinstance(classic, CompletingRebalance):
        context.answers += [SyncAnswer(member_id, SyncReply(again)) for member_id in classic.syncing]


# ---- downgrade


def drop_or_downgrade(context: GroupContext, members: Sequence[ConsumerMember]) -> None:
    """Remove members; if only classic ones are left, the group becomes a classic one and rebalances."""
    leaving = {member.member_id for member in members}
    staying = [member for member in context.group.members.values() if member.member_id not in leaving]
    if _only_classic(staying, context.view.config):
        downgrade(context, staying, {}, rebalance_after=True)
        context.stop_timers(leaving)
    else:
        fencing.drop_members(context, members)


def _only_classic(staying: Sequence[ConsumerMember], config: GroupConfig) -> bool:
    classic = bool(staying) and all(member.classic is not None for member in staying)
    return classic and may_downgrade(config) and len(staying) <= config.group_max_size and _readable(staying)


def _readable(members: Sequence[ConsumerMember]) -> bool:
    """Whether every member can receive its assignment under the protocol that would be chosen.

    A member's subscription for its first protocol was checked when it joined; the others were not.
    """
    classic = {member.member_id: _as_classic(member) for member in members}
    protocol = rebalance.select_protocol(classic)
    try:
        for member in classic.values():
            embedded.version_of(member.metadata(protocol))
    except embedded.Malformed:
        return False
    return True


def downgrades_by_replacing(group: ConsumerGroup, replaced: ConsumerMember | None, config: GroupConfig) -> bool:
    """Whether only classic members are left if a classic member takes over from `replaced`."""
    if replaced is None or replaced.classic is not None:
        return False
    others = [member for member in group.members.values() if member is not replaced]
    classic = all(member.classic is not None for member in others)
    return classic and may_downgrade(config) and len(group.members) <= config.group_max_size


def downgrade(
    context: GroupContext, staying: Sequence[ConsumerMember], successors: dict[str, str], *, rebalance_after: bool
) -> None:
    """Make a classic group of the members that stay, with their targets or (`rebalance_after`) what they have.

    `successors`: by the id of a member that takes over an instance id here, the id of the former member, whose target
    it gets. Its own records were written in this decision, so they are removed as well.
    """
    group, now_ms = context.group, context.view.now_ms
    former = set(successors.values())
    context.log += [record for record in tombstones(group) if getattr(record, "member_id", None) not in former]
    for successor in successors:
        at = len(context.log) - 1
        context.log[at:at] = [
            CurrentRecord(group.group_id, successor, None),
            TargetRecord(group.group_id, successor, None),
            MemberRecord(group.group_id, successor, None),
        ]
    members = {member.member_id: _as_classic(member) for member in staying}
    protocol = rebalance.select_protocol(members)
    # Kafka writes the targets in both cases. If a rebalance follows, the members do not have them yet: a group that is
    # upgraded in the middle of that rebalance would take partitions for free that members still read.
    given = {
        member.member_id: everything_of(member)
        if rebalance_after
        else group.target.get(successors.get(member.member_id, member.member_id), NOTHING)
        for member in staying
    }
    members = {
        key: _with_assignment(member, protocol, given[key], context.view.image) for key, member in members.items()
    }
    stable = Stable(group.epoch, embedded.PROTOCOL_TYPE, protocol, None, members)
    context.log.append(saved(group.group_id, stable, now_ms))
    for member in members.values():
        context.timers.append(SetTimer(TimerKind.SESSION, member.session_timeout_ms, member.member_id))
        context.timers += [
            SetTimer(kind, None, member.member_id)
            for kind in (TimerKind.CLASSIC_JOIN, TimerKind.CLASSIC_SYNC, TimerKind.REBALANCE)
        ]
    context.classic = stable
    if rebalance_after:
        context.classic = rebalance.prepare_rebalance(stable, None, now_ms, context)


def _as_classic(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.classic.protocols,
    )


def _with_assignment(member: Member, protocol: str, target: Assignment, image: MetadataImage) -> Member:
    version = embedded.version_of(member.metadata(protocol))
    return replace(member, assignment=embedded.write_assignment(target, image, version))
