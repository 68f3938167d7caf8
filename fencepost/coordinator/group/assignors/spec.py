"""What an assignor is told of a group, and where it is found by name."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]
Assignments: TypeAlias = dict[str, Assignment]
"""What each member is to have; a member that gets nothing may be left out."""


class MemberSpec(NamedTuple):
    """One member: the ids of the existing topics that it subscribes to, and what it was to have so far."""

    instance_id: str | None
    topic_ids: frozenset[bytes]
    assignment: Assignment


class GroupSpec(NamedTuple):
    """A group. `owners` says who was to have each partition so far; `partitions` how many each topic has.

    `homogeneous`: all members subscribe to the same topics, which makes the work much less.
    """

    members: Mapping[str, MemberSpec]
    homogeneous: bool
    owners: Mapping[bytes, Mapping[int, str]]
    partitions: Mapping[bytes, int]


Assignor: TypeAlias = Callable[[GroupSpec], Assignments]
