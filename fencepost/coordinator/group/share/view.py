"""Share groups as ShareGroupDescribe shows them."""

from dataclasses import dataclass
from typing import NamedTuple

from fencepost.coordinator.group.consumer.view import NamedTopic, named
from fencepost.coordinator.group.share.group import ShareGroup
from fencepost.coordinator.group.share.member import ShareMember
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.protocol.errors import ErrorCode

ASSIGNOR = "simple"
"""The only assignor of share groups."""


class DescribedShareMember(NamedTuple):
    """One member with its partitions."""

    member: ShareMember
    assigned: tuple[NamedTopic, ...]


@dataclass(frozen=True, slots=True)
class DescribedShareGroup:
    """One group; for an unknown one, or one of another type, `error` is GROUP_ID_NOT_FOUND."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    text: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedShareMember, ...] = ()


def describe(group: ShareGroup, image: MetadataImage) -> DescribedShareGroup:
    """The group with its members; deleted topics are left out."""
    members = tuple(DescribedShareMember(member, named(member.assigned, image)) for member in group.members.values())
    return DescribedShareGroup(
        group.group_id,
        state=group.state,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=ASSIGNOR,
        members=members,
    )
