"""Log lines about a group for operators: why it rebalances and with which result; and counts for the metrics."""

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass

from fencepost.coordinator.group.commands import Join, MemberName
from fencepost.coordinator.group.state import (
    MEMBERLESS,
    Active,
    CompletingRebalance,
    Dead,
    Empty,
    Group,
    PreparingRebalance,
    Stable,
    group_members,
)
from fencepost.coordinator.group.timers import TimerKind
from fencepost.protocol.errors import ErrorCode

NAMED_MAX = 5
"""How many members one log line names."""


@dataclass(slots=True)
class Tallies:
    """Counts since the start of the process, for the metrics; Kafka's group-coordinator-metrics."""

    committed_offsets: int = 0
    expired_offsets: int = 0
    deleted_offsets: int = 0
    """By OffsetDelete."""
    completed_rebalances: int = 0


def is_routine(before: Group, after: Group) -> bool:
    """Whether a decision's result needs no log line; nearly all are such."""
    if type(before) is not type(after):
        return False
    if isinstance(before, MEMBERLESS) or isinstance(after, MEMBERLESS):
        return True
    return before.generation == after.generation and len(after.members) >= len(before.members)


def counted_members(members: Sized) -> str:
    return "1 member" if len(members) == 1 else f"{len(members)} members"


def note_on(before: Group, after: Group, why: str) -> str | None:
    """One line about a decision's effect on a group's rebalance, unless it `is_routine`; None if it had none.

    `why` is the reason for the decision.
    """
    generation = _generation(before)
    was = f"generation {generation}" if generation else "a new group"
    if isinstance(after, PreparingRebalance) and not isinstance(before, PreparingRebalance):
        return f"{was} prepares a rebalance of {counted_members(after.members)}: {why}"
    if isinstance(after, PreparingRebalance) and len(after.members) < len(group_members(before)):
        return f"{was} continues its rebalance with {counted_members(after.members)}: {why}"
    if isinstance(after, CompletingRebalance) and after.generation != generation:
        gone = [member_id for member_id in group_members(before) if member_id not in after.members]
        dropped = f", dropped: {named(gone)}" if gone else ""
        reason = "" if isinstance(before, PreparingRebalance) and not gone else f" ({why})"
        count = counted_members(after.members)
        return f"generation {after.generation} with {count} waits for its leader{dropped}{reason}"
    if isinstance(after, Stable) and isinstance(before, CompletingRebalance):
        return f"generation {after.generation} is stable: {counted_members(after.members)}, {after.protocol}"
    if isinstance(after, Empty) and isinstance(before, Active):
        return f"generation {after.generation} is empty: {why}"
    return None


def _generation(group: Group) -> int:
    return 0 if isinstance(group, Dead) else group.generation


def joining(command: Join, member_id: str) -> str:
    """Why a Join starts a rebalance, with the client's reason (KIP-800)."""
    static = "" if command.group_instance_id is None else f" ({command.group_instance_id})"
    return f"member {command.member_id or member_id}{static} joins{_words(command.reason)}"


def syncing() -> str:
    """The text for a Sync, which never starts a rebalance."""
    return "a member synced"


def leaving(names: Sequence[MemberName], errors: Sequence[ErrorCode]) -> str:
    """Why a LeaveGroup starts a rebalance, with the clients' reasons (KIP-800)."""
    gone = [name for name, error in zip(names, errors, strict=True) if not error]
    texts = [f"{name.member_id or name.group_instance_id}{_words(name.reason)}" for name in gone]
    return f"left: {named(texts)}"


def expiring(kind: TimerKind, member_id: str, before: Group) -> str:
    """Why a timer starts or ends a rebalance."""
    match kind:
        case TimerKind.SESSION:
            member = group_members(before).get(member_id)
            silent = f" for {member.session_timeout_ms} ms" if member is not None else ""
            return f"member {member_id} sent no heartbeat{silent}"
        case TimerKind.JOIN:
            return "the rebalance timeout has passed"
        case TimerKind.SYNC:
            unsynced = before.unsynced if isinstance(before, CompletingRebalance | Stable) else frozenset()
            return f"these members sent no SyncGroup: {named(sorted(unsynced))}"
        case TimerKind.REBALANCE:
            return f"member {member_id} did not give its partitions back in time"
        case TimerKind.CLASSIC_JOIN:
            return f"classic member {member_id} did not rejoin in time"
        case TimerKind.CLASSIC_SYNC:
            return f"classic member {member_id} did not fetch its assignment in time"


def named(names: Iterable[str]) -> str:
    """The first names, and the number of the others."""
    names = list(names)
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _words(reason: str | None) -> str:
    return f", its reason: {reason}" if reason else ""
