"""What an operator wants to know of a group: why it rebalances, what came of it, and how much there was of all."""

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass

from fencepost.coordinator.group.commands import Join, MemberName
from fencepost.coordinator.group.state import (
    NOBODY,
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
"""How many members one line of the log names."""


@dataclass(slots=True)
class Tallies:
    """What has been counted since the start, for the metrics; Kafka's group-coordinator-metrics."""

    committed_offsets: int = 0
    expired_offsets: int = 0
    deleted_offsets: int = 0
    """By OffsetDelete."""
    completed_rebalances: int = 0


def goes_on(before: Group, after: Group) -> bool:
    """Whether a decision led to nothing that is worth a log line, as nearly every one."""
    if type(before) is not type(after):
        return False
    if isinstance(before, NOBODY) or isinstance(after, NOBODY):
        return True
    return before.generation == after.generation and len(after.members) >= len(before.members)


def counted_members(members: Sized) -> str:
    """`1 member`, `3 members`."""
    return "1 member" if len(members) == 1 else f"{len(members)} members"


def note_on(before: Group, after: Group, why: str) -> str | None:
    """One line about what a decision did to a group's rebalance, unless it `goes_on`; None where it did nothing to it.

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
        told = "" if isinstance(before, PreparingRebalance) and not gone else f" ({why})"
        return (
            f"generation {after.generation} with {counted_members(after.members)} waits for its leader{dropped}{told}"
        )
    if isinstance(after, Stable) and isinstance(before, CompletingRebalance):
        return f"generation {after.generation} is stable: {counted_members(after.members)}, {after.protocol}"
    if isinstance(after, Empty) and isinstance(before, Active):
        return f"generation {after.generation} is empty: {why}"
    return None


def _generation(group: Group) -> int:
    return 0 if isinstance(group, Dead) else group.generation


def joining(command: Join, member_id: str) -> str:
    """Why a Join starts a rebalance, with the client's own words (KIP-800)."""
    static = "" if command.group_instance_id is None else f" ({command.group_instance_id})"
    return f"member {command.member_id or member_id}{static} joins{_words(command.reason)}"


def syncing() -> str:
    """A Sync starts no rebalance, and ends one only by making the group stable."""
    return "a member synced"


def leaving(names: Sequence[MemberName], errors: Sequence[ErrorCode]) -> str:
    """Why a LeaveGroup starts a rebalance, with the clients' own words (KIP-800)."""
    gone = [name for name, error in zip(names, errors, strict=True) if not error]
    told = [f"{name.member_id or name.group_instance_id}{_words(name.reason)}" for name in gone]
    return f"left: {named(told)}"


def expiring(kind: TimerKind, member_id: str, before: Group) -> str:
    """Why a timer starts a rebalance, or ends one."""
    match kind:
        case TimerKind.SESSION:
            member = group_members(before).get(member_id)
            silent = f" for {member.session_timeout_ms} ms" if member is not None else ""
            return f"nothing was heard of member {member_id}{silent}"
        case TimerKind.JOIN:
            return "the time to join is over"
        case TimerKind.SYNC:
            unsynced = before.unsynced if isinstance(before, CompletingRebalance | Stable) else frozenset()
            return f"these never asked for their assignment: {named(sorted(unsynced))}"
        case TimerKind.REBALANCE:
            return f"member {member_id} did not give its partitions back in time"
        case TimerKind.CLASSIC_JOIN:
            return f"classic member {member_id} did not rejoin in time"
        case TimerKind.CLASSIC_SYNC:
            return f"classic member {member_id} did not fetch its assignment in time"


def named(names: Iterable[str]) -> str:
    """Some of the names, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _words(reason: str | None) -> str:
    return f", its reason: {reason}" if reason else ""
