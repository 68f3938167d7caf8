"""The target assignment of each member of a consumer group, and its records."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fencepost.coordinator.group.assignors import range_assignor, uniform
from fencepost.coordinator.group.assignors.spec import Assignor, GroupSpec, MemberSpec
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.member import NOTHING, Assignment, ConsumerMember
from fencepost.coordinator.group.consumer.records import ConsumerRecord, TargetEpoch, TargetEpochRecord, TargetRecord
from fencepost.coordinator.group.consumer.topics import subscribed_names, topic_ids
from fencepost.coordinator.group.timers import within
from fencepost.coordinator.metadata.image import MetadataImage

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": uniform.assign, "range": range_assignor.assign})


def preferred_assignor(
    group: ConsumerGroup, default: str, old: ConsumerMember | None = None, new: ConsumerMember | None = None
) -> str:
    """The assignor that most members ask for, with `new` in the place of `old`; in a tie the first name wins."""
    votes = dict(group.assignors)
    if old is not None and old.assignor is not None:
        votes[old.assignor] = votes.get(old.assignor, 0) - 1
    if new is not None and new.assignor is not None:
        votes[new.assignor] = votes.get(new.assignor, 0) + 1
    asked = [name for name, count in votes.items() if count > 0]
    return min(asked, key=lambda name: (-votes[name], name)) if asked else default


def is_due(assigned_at_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether a new target may be computed already (KIP-1263); `assigned_at_ms` is 0 before the first one."""
    return not assigned_at_ms or not within(assigned_at_ms, interval_ms, now_ms)


def new_target(
    group: ConsumerGroup,
    epoch: int,
    assignor: str,
    homogeneous: bool,
    updated: ConsumerMember,
    image: MetadataImage,
    now_ms: Callable[[], int],
) -> tuple[list[ConsumerRecord], Assignment]:
    """Assign with `updated` in the group; return the records to write, and the target of `updated`.

    A member that takes over an instance id starts from the target of the former member.
    """
    former = group.static.get(updated.instance_id) if updated.instance_id is not None else None
    members = {key: member for key, member in group.members.items() if key != former}
    members[updated.member_id] = updated
    starts = dict(group.target)
    if former is not None and former != updated.member_id:
        starts[updated.member_id] = group.target.get(former, NOTHING)
    specs = {
        key: MemberSpec(
            member.instance_id, topic_ids(subscribed_names(member, group.resolved), image), starts.get(key, NOTHING)
        )
        for key, member in members.items()
    }
    wanted = {topic_id for spec in specs.values() for topic_id in spec.topic_ids}
    partitions = {topic_id: image.topics_by_id[topic_id].partitions for topic_id in wanted}
    found = ASSIGNORS[assignor](GroupSpec(specs, homogeneous, group.target_owners, partitions))
    records: list[ConsumerRecord] = []
    for member_id in specs:
        given = found.get(member_id, NOTHING)
        if group.target.get(member_id) != given:
            records.append(TargetRecord(group.group_id, member_id, given))
    records.append(TargetEpochRecord(group.group_id, TargetEpoch(epoch, now_ms())))
    return records, found.get(updated.member_id, NOTHING)
