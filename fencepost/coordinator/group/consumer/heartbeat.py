"""ConsumerGroupHeartbeat as a decision: join, heartbeat, leave (KIP-848, row G4)."""

from dataclasses import replace

from fencepost.coordinator.group.consumer import fencing, migration, regexes
from fencepost.coordinator.group.consumer.context import GroupContext, View
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.member import JOIN_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember, without_epochs
from fencepost.coordinator.group.consumer.requests import Heartbeat, HeartbeatReply
from fencepost.coordinator.group.timers import SetTimer, TimerKind


def heartbeat(context: GroupContext, request: Heartbeat, new_member_id: str) -> HeartbeatReply:
    """A member joins, or sends a heartbeat; in both cases the reply may contain a new assignment. Raises Refused.

    A member of v0 that has no member id receives `new_member_id`.
    """
    member_id = request.member_id or new_member_id
    config = context.view.config
    fencing.check_size(context.group, request.member_id, config.group_consumer_max_size)
    member = _sender(context, request, member_id)
    updated = _updated(member, request)
    names_changed = context.note_member(member, updated)
    regex_change = context.note_regex(member, updated)
    bump = names_changed or regex_change is regexes.Change.UPDATED_AND_RESOLVED
    changed = names_changed or regex_change is not regexes.Change.NONE
    epoch, homogeneous = context.epoch(bump, member, updated)
    target_epoch, target = context.assign(epoch, homogeneous, member, updated)
    updated = context.step(updated, target_epoch, target, changed, request.reported)
    context.timers.append(SetTimer(TimerKind.SESSION, config.group_consumer_session_timeout_ms, member_id))
    shows_assignment = request.member_epoch == JOIN_EPOCH or request.is_full or member.assigned != updated.assigned
    return HeartbeatReply(
        member_id=member_id,
        member_epoch=updated.epoch,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        assignment=without_epochs(updated.assigned) if shows_assignment else None,
    )


def reply_if_unchanged(group: ConsumerGroup | None, request: Heartbeat, view: View) -> HeartbeatReply | None:
    """The reply to a heartbeat that changes nothing, if the group has not changed either; else None: use `heartbeat`.

    Nearly all heartbeats are such: a known dynamic member has reached the current target and requests nothing. Only its
    session has to be restarted.
    """
    if group is None or group.epoch > group.assignment_epoch or group.needs_refresh(view.now_ms):
        return None
    member = group.members.get(request.member_id)
    if member is None or not member.epoch == request.member_epoch == group.assignment_epoch:
        return None
    if member.regex or member.classic is not None or not member.reconciled_to(group.assignment_epoch):
        return None
    nothing_new = Heartbeat(
        request.group_id,
        member.member_id,
        member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        member_id_required=request.member_id_required,
    )
    if request != nothing_new:
        return None
    return HeartbeatReply(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=view.config.group_consumer_heartbeat_interval_ms,
    )


def _sender(context: GroupContext, request: Heartbeat, member_id: str) -> ConsumerMember:
    """The member that sent the request; a new one if it joins. Raises Refused."""
    group, joins = context.group, request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        if joins:
            member = group.members.get(member_id) or ConsumerMember(member_id=member_id)
        else:
            member = fencing.known_member(group, member_id)
    elif joins:
        return fencing.take_static_place(context, member_id, request.instance_id, by_consumer_protocol=True)
    else:
        member = fencing.holder_of(group, member_id, request.instance_id)
    fencing.check_epoch(member, request.member_epoch, request.reported)
    return member


def _updated(member: ConsumerMember, request: Heartbeat) -> ConsumerMember:
    """The member with the fields of the request; from now on it is not a classic member."""
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if request.assignor is None else request.assignor,
        topics=member.topics if request.topics is None else frozenset(request.topics),
        regex=member.regex if request.regex is None else request.regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


def leave(context: GroupContext, request: Heartbeat) -> HeartbeatReply:
    """A member leaves for good (epoch -1), or a static one temporarily (-2). Raises Refused."""
    member = fencing.find_member(context.group, request.member_id, request.instance_id)
    if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
        fencing.leave_temporarily(context, member)
    else:
        migration.drop_or_downgrade(context, [member])
    return HeartbeatReply(member_id=member.member_id, member_epoch=request.member_epoch)
