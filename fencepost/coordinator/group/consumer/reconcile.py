"""How a member gets from its current assignment to its target, one step per heartbeat (KIP-848).

A partition is first revoked from its owner, whose heartbeat confirms that it has stopped reading it; only then may the
next member have it. A member that must give partitions back stays in its epoch until it has, so that its commits stay
valid until then.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fencepost.coordinator.group.consumer.member import NOTHING_OWNED, Assignment, ConsumerMember, MemberState, Owned
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.protocol.errors import ErrorCode

Reported = Sequence[tuple[bytes, Sequence[int]]]
"""The partitions that a member reports to have, by topic id."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The inputs of a step besides the member."""

    epoch: int
    target: Assignment
    topic_ids: frozenset[bytes]
    """The topics that it subscribes to: it receives no others, even if they are in the target."""
    partition_epoch: Callable[[bytes, int], int]
    """The epoch of a partition's owner; -1 if it has none."""
    reported: Reported | None
    """The partitions that it reports to have; None if it reports none in this request."""
    subscription_changed: bool = False


def reconcile(member: ConsumerMember, towards: Reconciliation) -> ConsumerMember:
    """The member after one step; the same if none is possible.

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
    """Whether the member may still have one of these partitions: without a report it may have all."""
    if reported is None:
        return True
    return any(partition in revoking.get(topic_id, {}) for topic_id, partitions in reported for partition in partitions)


def _at(member: ConsumerMember, epoch: int, state: MemberState, assigned: Owned, revoking: Owned) -> ConsumerMember:
    return replace(member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, revoking=revoking)


def _without_unsubscribed(member: ConsumerMember, towards: Reconciliation) -> ConsumerMember:
    """Revoke the topics that the member no longer subscribes to, without waiting for a new target."""
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
    """The full step: keep the partitions in both, give back the others, and take the free ones of the target."""
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
    """Whether no member has the partition, or this member itself must give it back and may keep it now."""
    return towards.partition_epoch(topic_id, partition) == -1 or partition in member.revoking.get(topic_id, {})


def reported_of(topics: Iterable[tuple[bytes, Iterable[int]]]) -> Reported:
    """Partitions as a member reports them, as immutable values."""
    return tuple((topic_id, tuple(partitions)) for topic_id, partitions in topics)
