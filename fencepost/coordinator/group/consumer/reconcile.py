"""How a member gets from what it has to what it is to have, one step per heartbeat (KIP-848).

A partition is first taken from its owner, who says by the heartbeat that it has stopped reading it; only then may the
next member have it. A member that must give something back stays in its epoch until it did, so its commits stay valid
that long.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fencepost.coordinator.group.consumer.member import (
    NOTHING_OWNED,
    Assignment,
    ConsumerMember,
    MemberState,
    Owned,
)
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.protocol.errors import ErrorCode

Reported = Sequence[tuple[bytes, Sequence[int]]]
"""The partitions that a member says it has, by topic id."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a step looks at besides the member."""

    epoch: int
    """The epoch of the target assignment."""
    target: Assignment
    """What the member is to have."""
    topic_ids: frozenset[bytes]
    """What it subscribes to: nothing else is given to it, whatever the target says."""
    partition_epoch: Callable[[bytes, int], int]
    """The epoch of a partition's owner; -1 where it has none."""
    reported: Reported | None
    """What it says it has; None where it says nothing."""
    subscription_changed: bool = False


def reconcile(member: ConsumerMember, towards: Reconciliation) -> ConsumerMember:
    """The member after one step; the same where none is possible.

    Raises Refused with FENCED_MEMBER_EPOCH for a member in a state that only a newer broker knows.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch != towards.epoch:
                return _next(member, towards, member.epoch)
            return _without_unsubscribed(member, towards) if towards.subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_has(towards.reported, member.revoking):
                return _without_unsubscribed(member, towards) if towards.subscription_changed else member
            return _next(member, towards, member.epoch)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(member, towards, member.epoch)
        case MemberState.UNKNOWN:
            if towards.reported is None or towards.reported:
                text = "The consumer group member is in a unknown state. "
                raise Refused(
                    ErrorCode.FENCED_MEMBER_EPOCH, text + "The member must abandon all its partitions and rejoin."
                )
            return _next(member, towards, towards.epoch)


def _still_has(reported: Reported | None, revoking: Owned) -> bool:
    """Whether the member has one of these partitions, as far as is known: who says nothing may have all."""
    if reported is None:
        return True
    return any(partition in revoking.get(topic_id, {}) for topic_id, partitions in reported for partition in partitions)


def _at(member: ConsumerMember, epoch: int, state: MemberState, assigned: Owned, revoking: Owned) -> ConsumerMember:
    return replace(member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, revoking=revoking)


def _without_unsubscribed(member: ConsumerMember, towards: Reconciliation) -> ConsumerMember:
    """Take from it what it no longer subscribes to, without waiting for a new target."""
    dropped = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id not in towards.topic_ids}
    if not dropped:
        return member
    kept = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id in towards.topic_ids}
    revoking = {
        topic_id: {**member.revoking.get(topic_id, {}), **dropped.get(topic_id, {})}
        for topic_id in {**member.revoking, **dropped}
    }
    if _still_has(towards.reported, revoking):
        return _at(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return replace(member, previous_epoch=member.epoch, assigned=kept)


def _next(member: ConsumerMember, towards: Reconciliation, epoch: int) -> ConsumerMember:
    """The full step: keep what is in both, give back the rest, and take what is free."""
    assigned: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    arriving: dict[bytes, list[int]] = {}
    waits = False
    for topic_id in {**towards.target, **member.assigned}:
        wanted = towards.target.get(topic_id, frozenset()) if topic_id in towards.topic_ids else frozenset()
        owned = member.assigned.get(topic_id, {})
        _put(assigned, topic_id, {partition: at for partition, at in owned.items() if partition in wanted})
        _put(revoking, topic_id, {partition: at for partition, at in owned.items() if partition not in wanted})
        missing = sorted(wanted - owned.keys())
        free = [partition for partition in missing if _is_free(member, towards, topic_id, partition)]
        waits = waits or len(free) < len(missing)
        if free:
            arriving[topic_id] = free
    if revoking and _still_has(towards.reported, revoking):
        return _at(member, epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    for topic_id, partitions in arriving.items():
        assigned[topic_id] = {**assigned.get(topic_id, {}), **dict.fromkeys(partitions, towards.epoch)}
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _at(member, towards.epoch, state, assigned, NOTHING_OWNED)


def _put(owned: dict[bytes, dict[int, int]], topic_id: bytes, partitions: Mapping[int, int]) -> None:
    if partitions:
        owned[topic_id] = dict(partitions)


def _is_free(member: ConsumerMember, towards: Reconciliation, topic_id: bytes, partition: int) -> bool:
    """Nobody has it; or the member itself has still to give it back, and is now to keep it."""
    return towards.partition_epoch(topic_id, partition) == -1 or partition in member.revoking.get(topic_id, {})


def reported_of(topics: Iterable[tuple[bytes, Iterable[int]]]) -> Reported:
    """Partitions as a member reports them, made fast."""
    return tuple((topic_id, tuple(partitions)) for topic_id, partitions in topics)
