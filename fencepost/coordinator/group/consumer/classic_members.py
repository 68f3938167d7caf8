"""Members of the classic protocol in a consumer group: their Joins, Syncs, heartbeats and Leaves (row G5).

To them it is a group like any other: a heartbeat reports a rebalance, a Join returns the next generation, which is the
member's epoch, and a Sync returns the assignment. There is no leader, since the broker assigns; and no member waits for
others.
"""

from collections.abc import Sequence
from dataclasses import replace

from fencepost.coordinator.group.commands import Join, JoinReply, MemberName, Sync, SyncReply
from fencepost.coordinator.group.consumer import embedded, fencing, migration, regexes
from fencepost.coordinator.group.consumer.context import GroupContext
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.member import ClassicSide, ConsumerMember, MemberState, without_epochs
from fencepost.coordinator.group.consumer.migration import MigrationPolicy
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.group.consumer.requests import check_length
from fencepost.coordinator.group.timers import SetTimer, TimerKind
from fencepost.protocol.errors import ErrorCode


def join(context: GroupContext, command: Join, new_member_id: str) -> JoinReply:
    """A classic member joins, or rejoins for the next step towards its target. Raises Refused."""
    group, config = context.group, context.view.config
    member_id = command.member_id or new_member_id
    check_length("member id", member_id)
    if config.group_consumer_migration_policy == MigrationPolicy.DISABLED:
        text = f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration "
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text + "is disabled.")
    fencing.check_size(group, member_id, config.group_consumer_max_size)
    if not _speaks(group, command):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")
    if command.member_id_required and not command.member_id and command.group_instance_id is None:
        return JoinReply(member_id, ErrorCode.MEMBER_ID_REQUIRED)
    try:
        subscription = embedded.read_subscription(command.protocols[0][1])
    except embedded.Malformed as error:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Malformed embedded protocol: {error}") from error
    replaced = group.static_member(command.group_instance_id)
    down = migration.downgrades_by_replacing(group, replaced, config)
    member = _sender(context, command, member_id, subscription)
    updated = _updated(member, command, subscription)
    names_changed = context.note_member(member, updated)
    changed = context.note_regex(member, updated) is not regexes.Change.NONE or names_changed
    epoch, homogeneous = context.epoch(changed, member, updated)
    reported = embedded.reported_of(subscription, context.view.image)
    if not down:
        target_epoch, target = context.assign(epoch, homogeneous, member, updated)
        updated = context.step(updated, target_epoch, target, changed, reported)
        context.timers += [
            SetTimer(TimerKind.CLASSIC_JOIN, None, member_id),
            SetTimer(TimerKind.SESSION, command.session_timeout_ms, member_id),
            SetTimer(TimerKind.CLASSIC_SYNC, command.rebalance_timeout_ms, member_id),
        ]
    else:
        assert replaced is not None
        staying = [other for other in group.members.values() if other is not replaced]
        # Kafka turns the targets into assignments even if a member must still give up partitions meant for another one.
        arrived = all(other.reconciled_to(group.assignment_epoch) for other in staying)
        stale = group.assignment_epoch < epoch or not arrived
        if not stale:
            target = group.target_of(member_id, updated.instance_id)
            updated = context.step(updated, group.assignment_epoch, target, changed, reported)
        try:
            migration.downgrade(context, [*staying, updated], {member_id: replaced.member_id}, rebalance_after=stale)
        except embedded.Malformed as error:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot downgrade the group: {error}") from error
        context.stop_timers([replaced.member_id])
    return JoinReply(
        member_id, generation=updated.epoch, protocol_type=embedded.PROTOCOL_TYPE, protocol=command.protocols[0][0]
    )


def _speaks(group: ConsumerGroup, command: Join) -> bool:
    """Whether the member uses the protocol type of consumers, with an assignor that all classic members support."""
    names = [name for name, _ in command.protocols]
    shared = any(group.classic_protocols.get(name, 0) == group.classic_members for name in names)
    return command.protocol_type == embedded.PROTOCOL_TYPE and bool(names) and shared


def _sender(
    context: GroupContext, command: Join, member_id: str, subscription: embedded.Subscription
) -> ConsumerMember:
    """The member itself, or a new one. Raises Refused.

    Kafka accepts any unknown member id as a new member, also that of a member that does not know of its removal.
    Such a member would keep reading partitions that now belong to others; a classic group refuses it, and so does this.
    """
    if command.group_instance_id is None:
        member = context.group.members.get(member_id)
        if member is None and command.member_id and (subscription.owned or subscription.generation >= 0):
            text = f"Member {member_id} is no longer a member of group {context.group.group_id}."
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, text)
        return member or ConsumerMember(member_id=member_id)
    if command.member_id:
        return fencing.holder_of(context.group, member_id, command.group_instance_id)
    return fencing.take_static_place(context, member_id, command.group_instance_id, by_consumer_protocol=False)


def _updated(member: ConsumerMember, command: Join, subscription: embedded.Subscription) -> ConsumerMember:
    timeout_ms = command.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if command.group_instance_id is None else command.group_instance_id,
        rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        client_id=command.client_id,
        client_host=command.client_host,
        classic=ClassicSide(command.session_timeout_ms, command.protocols),
    )


def _classic_side(member: ConsumerMember) -> ClassicSide:
    if member.classic is None:
        text = f"Member {member.member_id} does not use the classic protocol."
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, text)
    return member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        text = f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
        raise Refused(ErrorCode.ILLEGAL_GENERATION, text + f"{member.member_id}.")


def _await_join(context: GroupContext, member: ConsumerMember) -> None:
    """Start the timer in which the member has to rejoin: its rebalance timeout."""
    delay_ms = member.rebalance_timeout_ms
    context.timers.append(SetTimer(TimerKind.CLASSIC_JOIN, delay_ms, member.member_id, if_absent=True))


def sync(context: GroupContext, command: Sync) -> SyncReply:
    """A classic member fetches its assignment; REBALANCE_IN_PROGRESS (not raised) if it has to rejoin first.

    Raises Refused.
    """
    group = context.group
    member = fencing.find_member(group, command.member_id, command.group_instance_id)
    classic = _classic_side(member)
    _check_generation(member, command.generation)
    name, metadata = classic.protocols[0]
    other_type = command.protocol_type is not None and command.protocol_type != embedded.PROTOCOL_TYPE
    if other_type or (command.protocol is not None and command.protocol != name):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member.member_id} joined with {name}.")
    if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _await_join(context, member)
        return SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
    context.timers += [
        SetTimer(TimerKind.CLASSIC_SYNC, None, member.member_id),
        SetTimer(TimerKind.SESSION, classic.session_timeout_ms, member.member_id),
    ]
    try:
        version = embedded.version_of(metadata)
    except embedded.Malformed as error:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Malformed embedded protocol: {error}") from error
    assignment = embedded.write_assignment(without_epochs(member.assigned), context.view.image, version)
    return SyncReply(protocol_type=command.protocol_type, protocol=command.protocol, assignment=assignment)


def heartbeat(context: GroupContext, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """A classic member is alive; REBALANCE_IN_PROGRESS if a Join would take it nearer to its target. Raises Refused."""
    group = context.group
    member = fencing.find_member(group, member_id, instance_id)
    classic = _classic_side(member)
    _check_generation(member, generation)
    context.timers.append(SetTimer(TimerKind.SESSION, classic.session_timeout_ms, member.member_id))
    arrived = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_partitions(member)
    behind = member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS
    if not behind and not arrived:
        return ErrorCode.NONE
    _await_join(context, member)
    return ErrorCode.REBALANCE_IN_PROGRESS


def leave(context: GroupContext, names: Sequence[MemberName]) -> tuple[ErrorCode, ...]:
    """Members leave, each with its own error."""
    errors: list[ErrorCode] = []
    leaving: dict[str, ConsumerMember] = {}
    for name in names:
        try:
            member = _leaving(context.group, name)
        except Refused as refused:
            errors.append(refused.code)
            continue
        leaving[member.member_id] = member
        errors.append(ErrorCode.NONE)
    if leaving:
        migration.drop_or_downgrade(context, list(leaving.values()))
    return tuple(errors)


def _leaving(group: ConsumerGroup, name: MemberName) -> ConsumerMember:
    """The member of `name`; administrators name a static one by its instance id alone (KIP-345). Raises Refused."""
    if name.group_instance_id is None or name.member_id:
        return fencing.find_member(group, name.member_id, name.group_instance_id)
    member = group.static_member(name.group_instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {name.group_instance_id} is unknown.")
    return member
