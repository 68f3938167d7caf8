"""Groups as DescribeGroups and ListGroups show them (row G11)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.coordinator.group.state import Dead, Empty, Group, Stable, group_members, state_name
from fencepost.protocol.errors import ErrorCode

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"


class DescribedMember(NamedTuple):
    """One member; `metadata` only while the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """One group; `error` is GROUP_ID_NOT_FOUND for an unknown one, whose state is then Dead."""

    group_id: str
    error: ErrorCode
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
    text: str | None = None
    """The error message; set together with `error`."""


class ListedGroup(NamedTuple):
    """One line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


def describe(group_id: str, group: Group) -> DescribedGroup:
    """The group with its members; the chosen protocol and the subscriptions under it only while it is stable."""
    if isinstance(group, Dead):
        text = f"Group {group_id} not found."
        return DescribedGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, state_name(group), text=text)
    protocol = group.protocol if isinstance(group, Stable) else None
    members = tuple(
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata(protocol) if protocol is not None else b"",
            member.assignment,
        )
        for member in group_members(group).values()
    )
    return DescribedGroup(
        group_id, ErrorCode.NONE, state_name(group), group.protocol_type or "", protocol or "", members
    )


def listed(group_id: str, group: Group) -> ListedGroup:
    assert not isinstance(group, Dead)
    return ListedGroup(group_id, group.protocol_type or "", state_name(group), CLASSIC)


def wanted(line: ListedGroup, states: Collection[str], types: Collection[str]) -> bool:
    """Whether the group passes the filters, in lower case; an empty filter passes all (KIP-518, KIP-848)."""
    return (not states or line.state.lower() in states) and (not types or line.group_type in types)


def is_deletable(group: Group) -> ErrorCode:
    """NONE if DeleteGroups may delete the group, else the error."""
    if isinstance(group, Dead):
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if isinstance(group, Empty) else ErrorCode.NON_EMPTY_GROUP
