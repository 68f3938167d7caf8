"""JoinGroup as a decision: newcomers, pending member ids (KIP-394), rejoining and static members (KIP-345, KIP-814)."""

from dataclasses import replace
from typing import assert_never

from fencepost.coordinator.group.classic import check_member
from fencepost.coordinator.group.commands import Join, JoinAnswer, JoinReply, SyncAnswer, SyncReply
from fencepost.coordinator.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from fencepost.coordinator.group.decision import ClassicDecision, DecisionBuilder, unchanged
from fencepost.coordinator.group.rebalance import (
    common_protocols,
    current_generation,
    prepare_rebalance,
    rebalance_or_complete,
    roster,
    select_protocol,
    start_group,
)
from fencepost.coordinator.group.state import (
    MEMBERLESS,
    Active,
    CompletingRebalance,
    Dead,
    Empty,
    Group,
    Member,
    PreparingRebalance,
    Stable,
    static_member_id,
    with_member,
    without_member,
)
from fencepost.coordinator.group.timers import SetTimer, TimerKind
from fencepost.protocol.errors import ErrorCode


def join(group: Group, command: Join, new_member_id: str, config: GroupConfig, now_ms: int) -> ClassicDecision:
    """Join the next generation. A new member, or a static one that returns, receives `new_member_id` (G1, G2)."""
    if not config.group_min_session_timeout_ms <= command.session_timeout_ms <= config.group_max_session_timeout_ms:
        return unchanged(group, JoinReply(command.member_id, ErrorCode.INVALID_SESSION_TIMEOUT))
    if isinstance(group, Dead) and command.member_id:
        return unchanged(group, JoinReply(command.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
    out = DecisionBuilder(command.group_id)
    if not _has_room(group, command.member_id, config.group_max_size):
        return _reject_full(group, command, now_ms, out)
    if not _fits(group, command):
        return unchanged(group, JoinReply(command.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    if command.member_id:
        return _join_known(group, command, config, now_ms, out)
    if command.group_instance_id is not None:
        held_by = static_member_id(group, command.group_instance_id)
        if held_by is not None:
            assert not isinstance(group, MEMBERLESS)
            return _replace_static(group, command, held_by, new_member_id, now_ms, out)
    elif command.member_id_required:
        return _assign_member_id(group, command, new_member_id, out)
    return _add(group, command, new_member_id, config, now_ms, out)


def _has_room(group: Group, member_id: str, max_size: int) -> bool:
    """Whether `group.max.size` allows one more member; in a rebalance, the first to rejoin keep their places."""
    if isinstance(group, MEMBERLESS) or len(group.members) < max_size:
        return True
    if isinstance(group, PreparingRebalance):
        return member_id in group.joined or len(group.joined) < max_size
    return member_id in group.members


def _reject_full(group: Group, command: Join, now_ms: int, out: DecisionBuilder) -> ClassicDecision:
    """The group is full: remove the late member; a rebalance that waited only for it completes."""
    reply = JoinReply("", ErrorCode.GROUP_MAX_SIZE_REACHED)
    if isinstance(group, MEMBERLESS) or not command.member_id:
        return out.decision(group, reply)
    out.end_sessions((command.member_id,))
    group = without_member(group, command.member_id)
    if not isinstance(group, PreparingRebalance):  # members always have room here, so this was a pending member id
        return out.decision(group, reply)
    return out.decision(rebalance_or_complete(group, None, now_ms, out), reply)


def _fits(group: Group, command: Join) -> bool:
    """Whether the member has the group's protocol type and at least one assignor that all members support."""
    if isinstance(group, MEMBERLESS):
        return bool(command.protocol_type and command.protocols)
    if command.protocol_type != group.protocol_type or not command.protocols:
        return False
    if not group.members:
        return True
    # A member with all assignors of one other member has the common ones too: so most Joins need not check thousands.
    sample = group.members.get(command.member_id) or next(iter(group.members.values()))
    if len(sample.protocols) == 1 and sample.protocols[0][0] == command.protocols[0][0]:
        return True
    names = {name for name, _ in command.protocols}
    return names.issuperset(name for name, _ in sample.protocols) or not names.isdisjoint(
        common_protocols(group.members)
    )


def _assign_member_id(group: Group, command: Join, new_member_id: str, out: DecisionBuilder) -> ClassicDecision:
    """Give a newcomer a member id to join with, so that a client that gave up leaves no member behind (KIP-394)."""
    group = Empty() if isinstance(group, Dead) else group
    out.timers.append(SetTimer(TimerKind.SESSION, command.session_timeout_ms, new_member_id))
    promised = replace(group, pending=group.pending | {new_member_id})
    return out.decision(promised, JoinReply(new_member_id, ErrorCode.MEMBER_ID_REQUIRED))


def _member(command: Join, member_id: str) -> Member:
    return Member(
        member_id,
        command.group_instance_id,
        command.client_id,
        command.client_host,
        command.session_timeout_ms,
        command.rebalance_timeout_ms,
        command.protocols,
        is_new=True,
    )


def _add(
    group: Group, command: Join, member_id: str, config: GroupConfig, now_ms: int, out: DecisionBuilder
) -> ClassicDecision:
    """Add a member; its first session is long, for it cannot send heartbeats while its Join is parked."""
    member = _member(command, member_id)
    out.timers.append(SetTimer(TimerKind.SESSION, NEW_MEMBER_JOIN_TIMEOUT_MS, member_id))
    after: Group
    match group:
        case Dead():
            after = start_group(Empty(), member, command.protocol_type, config, now_ms, out)
        case Empty():
            after = start_group(group, member, command.protocol_type, config, now_ms, out)
        case PreparingRebalance():
            initial = replace(group.initial, grew=True) if group.initial is not None else None
            group = replace(
                group,
                members=with_member(group.members, member),
                pending=group.pending - {member_id},
                initial=initial,
                leader=group.leader or member_id,
            )
            after = rebalance_or_complete(group, member_id, now_ms, out)
        case CompletingRebalance() | Stable():
            group = replace(group, members=with_member(group.members, member), pending=group.pending - {member_id})
            after = prepare_rebalance(group, member_id, now_ms, out)
        case _:
            assert_never(group)
    return out.decision(after, parked_as=member_id)


def _join_known(group: Group, command: Join, config: GroupConfig, now_ms: int, out: DecisionBuilder) -> ClassicDecision:
    """A member rejoins, or a newcomer joins with its pending member id."""
    member_id = command.member_id
    if not isinstance(group, Dead) and member_id in group.pending and command.group_instance_id is None:
        return _add(group, command, member_id, config, now_ms, out)
    error = check_member(group, member_id, command.group_instance_id)
    if error:
        return unchanged(group, JoinReply(member_id, error))
    match group:
        case PreparingRebalance():
            return _rejoin(group, command, now_ms, out)
        case Dead() | Empty():
            return unchanged(group, JoinReply(member_id, ErrorCode.UNKNOWN_MEMBER_ID))
        case CompletingRebalance():
            # The same metadata again: the first answer may have been lost, so the member receives it again.
            if group.members[member_id].protocols == command.protocols:
                return out.decision(group, current_generation(group, member_id))
            return _rejoin(group, command, now_ms, out)
        case Stable():
            # A leader rejoins to request a rebalance, because topics changed. A follower may have lost an answer.
            says_the_same = group.members[member_id].protocols == command.protocols
            if says_the_same and group.leader != member_id:
                return out.decision(group, current_generation(group, member_id))
            return _rejoin(group, command, now_ms, out)
        case _:
            assert_never(group)


def _rejoin(group: Active, command: Join, now_ms: int, out: DecisionBuilder) -> ClassicDecision:
    member_id = command.member_id
    member = group.members[member_id]
    updated = _updated(member, command)
    members = group.members if updated is member else with_member(group.members, updated)
    return out.decision(rebalance_or_complete(group, member_id, now_ms, out, members), None, member_id)


def _updated(member: Member, command: Join) -> Member:
    if (
        member.protocols == command.protocols
        and member.session_timeout_ms == command.session_timeout_ms
        and member.rebalance_timeout_ms == command.rebalance_timeout_ms
    ):
        return member
    return Member(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        command.session_timeout_ms,
        command.rebalance_timeout_ms,
        command.protocols,
        member.assignment,
        member.is_new,
    )


def _replace_static(
    group: Active, command: Join, old_member_id: str, new_member_id: str, now_ms: int, out: DecisionBuilder
) -> ClassicDecision:
    """A new process takes over an instance id: the old member is fenced, a stable group stays stable (KIP-345)."""
    fence_parked(old_member_id, out)
    group = _with_new_holder(group, old_member_id, new_member_id, command)
    out.end_sessions((old_member_id,))
    out.session(group.members[new_member_id])
    match group:
        case Stable():
            if select_protocol(group.members) != group.protocol:
                return out.decision(prepare_rebalance(group, new_member_id, now_ms, out), parked_as=new_member_id)
            out.save(group, now_ms)
            out.answers.append(
                JoinAnswer(new_member_id, _resumed(group, new_member_id, old_member_id, command.can_skip_assignment))
            )
            return out.decision(group, parked_as=new_member_id)
        case CompletingRebalance():
            # The leader may be computing an assignment for the old id, so all members rejoin.
            return out.decision(prepare_rebalance(group, new_member_id, now_ms, out), parked_as=new_member_id)
        case PreparingRebalance():
            return out.decision(rebalance_or_complete(group, new_member_id, now_ms, out), parked_as=new_member_id)
        case _:
            assert_never(group)


def fence_parked(member_id: str, out: DecisionBuilder) -> None:
    """Answer the fenced member's parked Join and Sync with FENCED_INSTANCE_ID."""
    out.answers.append(JoinAnswer(member_id, JoinReply(member_id, ErrorCode.FENCED_INSTANCE_ID)))
    out.answers.append(SyncAnswer(member_id, SyncReply(ErrorCode.FENCED_INSTANCE_ID)))


def _with_new_holder(group: Active, old_member_id: str, new_member_id: str, command: Join) -> Active:
    """The group with the member under its new id, in its old order and with its assignment."""
    members = {
        (new_member_id if key == old_member_id else key): (
            _successor(member, new_member_id, command) if key == old_member_id else member
        )
        for key, member in group.members.items()
    }
    leader = new_member_id if group.leader == old_member_id else group.leader
    match group:
        case PreparingRebalance():
            return replace(group, members=members, leader=leader, joined=group.joined.minus(old_member_id))
        case CompletingRebalance():
            return replace(group, members=members, leader=leader or "", syncing=group.syncing.minus(old_member_id))
        case Stable():
            synced = None if group.synced is None else group.synced.minus(old_member_id).plus(new_member_id)
            return replace(group, members=members, leader=leader, synced=synced)
        case _:
            assert_never(group)


def _successor(member: Member, member_id: str, command: Join) -> Member:
    return replace(_member(command, member_id), assignment=member.assignment, is_new=False)


def _resumed(group: Stable, member_id: str, old_member_id: str, can_skip_assignment: bool) -> JoinReply:
    """The reply to a static member that returns to a stable group.

    A leader that supports KIP-814 stays the leader, but skips the assignment. An older client receives its former
    member id as the leader, so that it computes no assignment that no member waits for.
    """
    reply = current_generation(group, member_id)
    if group.leader != member_id:
        return reply
    if can_skip_assignment:
        return replace(reply, skip_assignment=True, members=roster(group.members, group.protocol))
    return replace(reply, leader=old_member_id)
