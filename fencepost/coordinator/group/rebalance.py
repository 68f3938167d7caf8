"""How a group gets from one generation to the next: which members it waits for or drops, its leader and protocol."""

from collections import Counter
from dataclasses import replace
from typing import assert_never

from fencepost.coordinator.group.commands import JoinAnswer, JoinedMember, JoinReply, SyncAnswer, SyncReply
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.decision import ClassicDecision, DecisionBuilder
from fencepost.coordinator.group.persistent import PersistentSet
from fencepost.coordinator.group.state import (
    Active,
    CompletingRebalance,
    Dead,
    Empty,
    Group,
    InitialDelay,
    Member,
    Members,
    PreparingRebalance,
    Stable,
    without_member,
)
from fencepost.coordinator.group.timers import TimerKind
from fencepost.protocol.errors import NO_ERROR, ErrorCode

LARGEST_GENERATION = 2**31 - 1


def start_group(
    group: Empty, member: Member, protocol_type: str, config: GroupConfig, now_ms: int, out: DecisionBuilder
) -> Group:
    """The first member joins an empty group: wait `group.initial.rebalance.delay.ms` for others."""
    delay_ms = config.group_initial_rebalance_delay_ms
    preparing = PreparingRebalance(
        group.generation,
        protocol_type,
        None,
        member.member_id,
        {member.member_id: member},
        joined=PersistentSet((member.member_id,)),
        pending=group.pending - {member.member_id},
        initial=InitialDelay(delay_ms, max(member.rebalance_timeout_ms - delay_ms, 0)),
    )
    if delay_ms == 0:
        return complete_join(preparing, now_ms, out)
    out.set(TimerKind.JOIN, delay_ms)
    return preparing


def prepare_rebalance(
    group: CompletingRebalance | Stable, joined: str | None, now_ms: int, out: DecisionBuilder
) -> PreparingRebalance | CompletingRebalance | Empty:
    """Ask all members to rejoin (G1): parked Syncs end with REBALANCE_IN_PROGRESS; `joined` has joined already."""
    members = group.members
    if isinstance(group, CompletingRebalance):
        members = {
            key: replace(member, assignment=b"") if member.assignment else member for key, member in members.items()
        }
        for member_id in group.syncing:
            out.answers.append(SyncAnswer(member_id, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)))
            out.session(members[member_id])
    out.set(TimerKind.SYNC, None)
    preparing = PreparingRebalance(
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or None,
        members,
        PersistentSet(() if joined is None else (joined,)),
        group.pending,
    )
    if preparing.all_joined:
        return complete_join(preparing, now_ms, out)
    out.set(TimerKind.JOIN, rebalance_timeout_ms(members))
    return preparing


def rebalance_or_complete(
    group: Active, joined: str | None, now_ms: int, out: DecisionBuilder, members: Members | None = None
) -> Group:
    """After a member joined, changed or left: start a rebalance, or complete the running one if all have joined.

    Member `joined`, if not None, waits in its Join. `members`, if not None, replace the group's members.
    """
    members = group.members if members is None else members
    match group:
        case PreparingRebalance():
            group = PreparingRebalance(
                group.generation,
                group.protocol_type,
                group.protocol,
                group.leader,
                members,
                group.joined if joined is None else group.joined.plus(joined),
                group.pending,
                group.initial,
            )
            if group.initial is None and group.all_joined:
                return complete_join(group, now_ms, out)
            return group
        case Stable() | CompletingRebalance():
            return prepare_rebalance(replace(group, members=members), joined, now_ms, out)
        case _:
            assert_never(group)


def complete_join(
    group: PreparingRebalance, now_ms: int, out: DecisionBuilder
) -> PreparingRebalance | CompletingRebalance | Empty:
    """End the join phase: drop the dynamic members that did not join, elect, select the protocol, answer parked Joins.

    Static members stay until their sessions expire (KIP-345). If no member joined, wait for another rebalance timeout.
    """
    missing = []
    if len(group.joined) < len(group.members):
        missing = [
            member.member_id
            for member in group.members.values()
            if member.member_id not in group.joined and member.group_instance_id is None
        ]
    out.end_sessions(missing)
    active: Active = group
    for member_id in missing:
        active = without_member(active, member_id)
    assert isinstance(active, PreparingRebalance)
    group = active
    if group.members and not group.joined:
        out.set(TimerKind.JOIN, rebalance_timeout_ms(group.members))
        return group
    out.set(TimerKind.JOIN, None)
    generation = (group.generation + 1) & LARGEST_GENERATION
    if not group.members:
        return _emptied(group, generation, now_ms, out)
    return _next_generation(group, generation, out)


def _emptied(group: PreparingRebalance, generation: int, now_ms: int, out: DecisionBuilder) -> Empty:
    empty = Empty(generation, group.protocol_type, now_ms, group.pending)
    out.save(empty, now_ms)
    return empty


def _next_generation(group: PreparingRebalance, generation: int, out: DecisionBuilder) -> CompletingRebalance:
    leader = group.leader
    if leader not in group.joined:
        leader = next(member_id for member_id in group.members if member_id in group.joined)
    assert leader is not None
    protocol = select_protocol(group.members)
    members = {key: replace(member, is_new=False) if member.is_new else member for key, member in group.members.items()}
    completing = CompletingRebalance(generation, group.protocol_type, protocol, leader, members, pending=group.pending)
    answers, joined = out.answers, group.joined
    for member_id, member in members.items():
        if member_id in joined:
            answers.append(JoinAnswer(member_id, current_generation(completing, member_id)))
        out.session(member)
    out.set(TimerKind.SYNC, rebalance_timeout_ms(members))
    return completing


def current_generation(group: CompletingRebalance | Stable, member_id: str) -> JoinReply:
    """The reply to a Join with the current generation; it has the members only for the leader of a rebalance."""
    leads = isinstance(group, CompletingRebalance) and group.leader == member_id
    return JoinReply(
        member_id,
        NO_ERROR,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or "",
        False,
        roster(group.members, group.protocol) if leads else (),
    )


def roster(members: Members, protocol: str) -> tuple[JoinedMember, ...]:
    """All members with their subscriptions for the chosen protocol, for the leader."""
    return tuple(
        JoinedMember(member.member_id, member.group_instance_id, member.metadata(protocol))
        for member in members.values()
    )


def rebalance_timeout_ms(members: Members) -> int:
    return max((member.rebalance_timeout_ms for member in members.values()), default=0)


def common_protocols(members: Members) -> frozenset[str]:
    sets = [frozenset(name for name, _ in member.protocols) for member in members.values()]
    return frozenset.intersection(*sets) if sets else frozenset()


def select_protocol(members: Members) -> str:
    """The protocol with the most votes among those that all support; each member votes for its first such protocol.

    In a tie the earlier member's vote decides.
    """
    favourites = {member.protocols[0][0] if len(member.protocols) == 1 else None for member in members.values()}
    if len(favourites) == 1 and (only := favourites.pop()) is not None:
        return only  # nearly always: all members have one protocol, the same
    candidates = common_protocols(members)
    assert candidates, "every member that joins shares a protocol with the others"
    votes = Counter(next(name for name, _ in member.protocols if name in candidates) for member in members.values())
    return votes.most_common(1)[0][0]


def expire_join(group_id: str, group: Group, config: GroupConfig, now_ms: int) -> ClassicDecision:
    """The join timer expired: extend the initial delay if newcomers joined in it, else end the join phase."""
    out = DecisionBuilder(group_id)
    if not isinstance(group, PreparingRebalance):
        return out.decision(group)
    initial = group.initial
    if initial is not None and initial.grew and initial.remaining_ms > 0:
        delay_ms = min(config.group_initial_rebalance_delay_ms, initial.remaining_ms)
        remaining_ms = max(initial.remaining_ms - initial.delay_ms, 0)
        out.set(TimerKind.JOIN, delay_ms)
        return out.decision(replace(group, initial=InitialDelay(delay_ms, remaining_ms)))
    return out.decision(complete_join(replace(group, initial=None), now_ms, out))


def expire_sync(group_id: str, group: Group, now_ms: int) -> ClassicDecision:
    """The sync timer expired: drop the members that have not fetched their assignment; the others rebalance."""
    out = DecisionBuilder(group_id)
    if not isinstance(group, CompletingRebalance | Stable) or not group.unsynced:
        return out.decision(group)
    gone = group.unsynced
    out.end_sessions(gone)
    active: Active = group
    for member_id in gone:
        active = without_member(active, member_id)
    assert not isinstance(active, PreparingRebalance)
    return out.decision(prepare_rebalance(active, None, now_ms, out))


def expire_session(group_id: str, group: Group, member_id: str, now_ms: int) -> ClassicDecision:
    """A member's session timer expired.

    A member that waits in a Join or a Sync counts as alive; its session restarts when the wait ends. A first Join is an
    exception: its client may have given up before it learned the member id.
    """
    out = DecisionBuilder(group_id)
    match group:
        case Dead():
            return out.decision(group)
        case Empty():
            return out.decision(replace(group, pending=group.pending - {member_id}))
        case PreparingRebalance() | CompletingRebalance() | Stable():
            member = group.members.get(member_id)
            waiting = isinstance(group, PreparingRebalance) and member_id in group.joined
            waiting = waiting or (isinstance(group, CompletingRebalance) and member_id in group.syncing)
            if member is not None and waiting and not member.is_new:
                return out.decision(group)
            return out.decision(remove_member(group, member_id, now_ms, out))
        case _:
            assert_never(group)


def rebalance_if_too_large(group_id: str, group: Group, config: GroupConfig, now_ms: int) -> ClassicDecision:
    """If a loaded group is larger than `group.max.size` allows, it rebalances: the last to rejoin are rejected."""
    out = DecisionBuilder(group_id)
    if isinstance(group, Stable) and len(group.members) > config.group_max_size:
        return out.decision(prepare_rebalance(group, None, now_ms, out))
    return out.decision(group)


def remove_member(group: Active, member_id: str, now_ms: int, out: DecisionBuilder) -> Group:
    """Remove a member or a pending member id; start a rebalance, or complete the running one, if that is needed."""
    was_member = member_id in group.members
    group = drop_member(group, member_id, out)
    if was_member and not isinstance(group, PreparingRebalance):
        return prepare_rebalance(group, None, now_ms, out)
    if isinstance(group, PreparingRebalance) and group.all_joined:
        return complete_join(group, now_ms, out)
    return group


def drop_member(group: Active, member_id: str, out: DecisionBuilder) -> Active:
    """Remove a member or a pending member id; its parked Join or Sync ends with UNKNOWN_MEMBER_ID."""
    out.end_sessions((member_id,))
    if isinstance(group, PreparingRebalance) and member_id in group.joined:
        out.answers.append(JoinAnswer(member_id, JoinReply("", ErrorCode.UNKNOWN_MEMBER_ID)))
    if isinstance(group, CompletingRebalance) and member_id in group.syncing:
        out.answers.append(SyncAnswer(member_id, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID)))
    return without_member(group, member_id)
