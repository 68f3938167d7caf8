"""Consumer groups as ConsumerGroupDescribe shows them."""

from dataclasses import dataclass
from typing import NamedTuple

from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.member import NOTHING, Assignment, ConsumerMember, everything_of
from fencepost.coordinator.group.consumer.target import preferred_assignor
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.protocol.errors import ErrorCode


class NamedTopic(NamedTuple):
    topic_id: bytes
    name: str
    partitions: tuple[int, ...]


class DescribedConsumer(NamedTuple):
    """One member; `assigned` has the partitions that it may read, also those that it must still give back."""

    member: ConsumerMember
    assigned: tuple[NamedTopic, ...]
    target: tuple[NamedTopic, ...]


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    """One group; for an unknown one, or one of another type, `error` is GROUP_ID_NOT_FOUND."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    text: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


def describe(group: ConsumerGroup, default_assignor: str, image: MetadataImage) -> DescribedConsumerGroup:
    """The group with its members; deleted topics are left out."""
    members = tuple(
        DescribedConsumer(
            member, named(everything_of(member), image), named(group.target.get(member.member_id, NOTHING), image)
        )
        for member in group.members.values()
    )
    return DescribedConsumerGroup(
        group.group_id,
        state=group.state,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=preferred_assignor(group, default_assignor),
        members=members,
    )


def named(assignment: Assignment, image: MetadataImage) -> tuple[NamedTopic, ...]:
    """The partitions with the names of their topics; deleted topics are left out."""
    return tuple(
        NamedTopic(topic_id, image.topics_by_id[topic_id].name, tuple(sorted(partitions)))
        for topic_id, partitions in assignment.items()
        if topic_id in image.topics_by_id
    )
