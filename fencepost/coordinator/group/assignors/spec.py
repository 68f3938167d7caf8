"""The input and the output of an assignor."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]
Assignments: TypeAlias = dict[str, Assignment]
"""The target of each member; a member without partitions may be left out."""


class MemberSpec(NamedTuple):
    """One member: the ids of the existing topics that it subscribes to, and its former target."""

    instance_id: str | None
    topic_ids: frozenset[bytes]
    assignment: Assignment


class GroupSpec(NamedTuple):
    """A group. `owners`: the member of each partition in the former target; `partitions`: how many each topic has.

    `homogeneous`: whether all members subscribe to the same topics, which makes the work much smaller.
    """

    members: Mapping[str, MemberSpec]
    homogeneous: bool
    owners: Mapping[bytes, Mapping[int, str]]
    partitions: Mapping[bytes, int]


Assignor: TypeAlias = Callable[[GroupSpec], Assignments]
