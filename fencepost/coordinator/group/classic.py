"""The classic group protocol as decisions: Sync, Heartbeat, Leave, and which senders may commit offsets (row G1).

Each takes the group and a request and returns a decision; `join.py` has the Join, `rebalance.py` the rebalance.
"""

from dataclasses import replace
from typing import Final, assert_never

from fencepost.coordinator.group.commands import LeaveReply, MemberName, Sync, SyncAnswer, SyncReply
from fencepost.coordinator.group.decision import ClassicDecision, DecisionBuilder, unchanged
from fencepost.coordinator.group.rebalance import drop_member, rebalance_or_complete
from fencepost.coordinator.group.state import (
    MEMBERLESS,
    CompletingRebalance,
    Dead,
    Empty,
    Group,
    Member,
    PreparingRebalance,
    Stable,
    group_members,
    pending_members,
    static_member_id,
)
from fencepost.coordinator.group.timers import TimerKind
from fencepost.protocol.errors import NO_ERROR, ErrorCode


def check_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """NONE if the group has this member; FENCED_INSTANCE_ID if another one took its instance id (KIP-345)."""
    member = None if isinstance(group, MEMBERLESS) else group.members.get(member_id)
    if instance_id is None or (member is not None and member.group_instance_id == instance_id):
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else NO_ERROR
    return ErrorCode.UNKNOWN_MEMBER_ID if static_member_id(group, instance_id) is None else ErrorCode.FENCED_INSTANCE_ID


def sync(group: Group, command: Sync, now_ms: int) -> ClassicDecision:
    """A member requests its assignment; the leader's Sync has all assignments and makes the group stable."""
    error = _check_sync(group, command)
    if error:
        return unchanged(group, SyncReply(error))
    match group:
        case CompletingRebalance():
            return _sync_completing(group, command, now_ms)
        case Stable():
            return _sync_stable(group, command)
        case PreparingRebalance():
            return unchanged(group, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
        case Dead() | Empty():
            return unchanged(group, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
        case _:
            assert_never(group)


def _sync_completing(group: CompletingRebalance, command: Sync, now_ms: int) -> ClassicDecision:
    """The leader's Sync ends the wait; that of any other member starts to wait."""
    member_id = command.member_id
    out = DecisionBuilder(command.group_id)
    waiting = CompletingRebalance(
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader,
        group.members,
        group.syncing.plus(member_id),
        group.pending,
    )
    if len(waiting.syncing) == len(waiting.members):
        out.set(TimerKind.SYNC, None)
    after = _assign(waiting, command, now_ms, out) if member_id == group.leader else waiting
    return out.decision(after, None, member_id)


def _sync_stable(group: Stable, command: Sync) -> ClassicDecision:
    """Answer with the assignment; the last member's Sync stops the sync timer."""
    member_id, synced = command.member_id, group.synced
    out = DecisionBuilder(command.group_id)
    if synced is not None and member_id not in synced:
        synced = synced.plus(member_id)
        if len(synced) == len(group.members):
            synced = None
            out.set(TimerKind.SYNC, None)
        group = Stable(
            group.generation, group.protocol_type, group.protocol, group.leader, group.members, synced, group.pending
        )
    out.session(group.members[member_id])
    return out.decision(group, assignment(group, member_id))


def _check_sync(group: Group, command: Sync) -> ErrorCode:
    if isinstance(group, MEMBERLESS):
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = check_member(group, command.member_id, command.group_instance_id)
    if error:
        return error
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    other_type = command.protocol_type is not None and command.protocol_type != group.protocol_type
    other_name = command.protocol is not None and group.protocol is not None and command.protocol != group.protocol
    return ErrorCode.INCONSISTENT_GROUP_PROTOCOL if other_type or other_name else NO_ERROR


def _assign(group: CompletingRebalance, command: Sync, now_ms: int, out: DecisionBuilder) -> Stable:
    """Give every member the leader's assignment (empty if the leader sent none) and wake the parked Syncs.

    Their sessions restart: a session that expired while its Sync was parked did not count.
    """
    assignments = dict(command.assignments)
    members = {key: _assigned(member, assignments.get(key, b"")) for key, member in group.members.items()}
    stable = Stable(
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader,
        members,
        None if len(group.syncing) == len(members) else group.syncing,
        group.pending,
    )
    out.save(stable, now_ms)
    for member_id in group.syncing:
        out.answers.append(SyncAnswer(member_id, assignment(stable, member_id)))
        out.session(members[member_id])
    return stable


def _assigned(member: Member, assignment: bytes) -> Member:
    return member if member.assignment == assignment else replace(member, assignment=assignment)


def assignment(group: Stable, member_id: str) -> SyncReply:
    return SyncReply(NO_ERROR, group.protocol_type, group.protocol, group.members[member_id].assignment)


ALIVE: Final = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
"""The answers to a heartbeat that restart the member's session."""


def heartbeat(group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    if isinstance(group, MEMBERLESS):
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = check_member(group, member_id, instance_id)
    if error:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.REBALANCE_IN_PROGRESS if isinstance(group, PreparingRebalance) else NO_ERROR


def leave(group_id: str, group: Group, names: tuple[MemberName, ...], now_ms: int) -> ClassicDecision:
    """Members leave, each with its own error; the others rebalance once, however many left (KIP-345)."""
    out = DecisionBuilder(group_id)
    errors: list[ErrorCode] = []
    before = group_members(group)
    for name in names:
        member_id, error = _leaving(group, name)
        errors.append(error)
        if error:
            continue
        if isinstance(group, Empty):
            group = replace(group, pending=group.pending - {member_id})
            out.end_sessions((member_id,))
            continue
        assert not isinstance(group, Dead)
        group = drop_member(group, member_id, out)
    fewer = len(group_members(group)) < len(before)
    if isinstance(group, PreparingRebalance) or (fewer and isinstance(group, CompletingRebalance | Stable)):
        group = rebalance_or_complete(group, None, now_ms, out)
    return out.decision(group, LeaveReply(tuple(errors)))


def _leaving(group: Group, name: MemberName) -> tuple[str, ErrorCode]:
    """The member id of `name`, and whether it may leave; without a member id the instance id identifies it."""
    if not name.member_id:
        held = static_member_id(group, name.group_instance_id) if name.group_instance_id is not None else None
        return (held, ErrorCode.NONE) if held is not None else ("", ErrorCode.UNKNOWN_MEMBER_ID)
    if name.member_id in pending_members(group):
        return name.member_id, ErrorCode.NONE
    return name.member_id, check_member(group, name.member_id, name.group_instance_id)


def check_commit(
    group: Group, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
) -> ErrorCode:
    """Whether this sender may commit offsets for a group that exists (rows T5 and G1; KIP-447 for transactions).

    A negative generation comes from an admin tool or a consumer without membership: it may commit while the group is
    empty. Transactions from before KIP-447 name no member and may always commit, whatever the group's phase.
    """
    if generation < 0 and isinstance(group, MEMBERLESS):
        return ErrorCode.NONE
    if generation >= 0 or member_id or instance_id is not None:
        error = check_member(group, member_id, instance_id)
        if error:
            return error
        if isinstance(group, MEMBERLESS) or generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
    elif not transactional:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and isinstance(group, CompletingRebalance):
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
