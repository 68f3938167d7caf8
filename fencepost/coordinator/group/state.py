"""The state of a group of the classic protocol: its members and its phase.

           join                 all members joined, or the timeout         the leader's SyncGroup
    Empty ------> Preparing ------------------------------------> Completing ------------------> Stable
      ^           Rebalance <------------------------------------ Rebalance                        |
      |             |   ^       a join, a leave, an expired session, a missing sync                |
      +-------------+   +--------------------------------------------------------------------------+
        no member left

An unknown group is `Dead`: Kafka's DescribeGroups gives it that state. The log has the generation, the members and
their assignments (GroupMetadataValue). The members that have joined or synced and the pending member ids are in memory
only; their loss costs a client one retry.

Every request of a rebalance creates a new phase: that is why `coordinator/values.py` has its own dataclass.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from fencepost.coordinator.group.persistent import PersistentMap, PersistentSet

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from fencepost.coordinator.values import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """One consumer (or Connect worker, ...) of a group."""

    member_id: str
    group_instance_id: str | None
    """Set for a static member (KIP-345), which keeps its membership across restarts of its process."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Assignor names with the member's subscription for each, the preferred one first."""
    assignment: bytes = b""
    is_new: bool = False
    """Whether it waits in its first Join: it does not know its id and cannot send heartbeats."""

    def metadata(self, protocol: str | None) -> bytes:
        """This member's subscription for `protocol`; empty if it has none."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


Members: TypeAlias = Mapping[str, Member]
"""Members by id, in the order of arrival; never changed in place."""

MEMBERS_COPIED = 32
"""Up to this many members, a copy is faster than a `PersistentMap`."""


@dataclass(frozen=True, slots=True)
class Dead:
    """The group never existed, or was deleted."""


@dataclass(frozen=True, slots=True)
class Empty:
    """A group without members: it exists for its offsets, or for the pending member ids of newcomers (KIP-394)."""

    generation: int = 0
    protocol_type: str | None = None
    """None: a simple group, which only ever committed offsets."""
    since_ms: int | None = None
    pending: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class InitialDelay:
    """How long the first rebalance of a group still waits for newcomers (`group.initial.rebalance.delay.ms`)."""

    delay_ms: int
    remaining_ms: int
    grew: bool = False


@dataclass(frozen=True, slots=True)
class PreparingRebalance:
    """Waiting for the members to (re)join; `joined` are those whose Join is parked."""

    generation: int
    protocol_type: str
    protocol: str | None
    leader: str | None
    members: Members
    joined: PersistentSet = field(default_factory=PersistentSet)
    pending: frozenset[str] = frozenset()
    initial: InitialDelay | None = None

    @property
    def all_joined(self) -> bool:
        return len(self.joined) == len(self.members) and not self.pending


@dataclass(frozen=True, slots=True)
class CompletingRebalance:
    """The leader computes the assignment; `syncing` are those whose Sync is parked."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: Members
    syncing: PersistentSet = field(default_factory=PersistentSet)
    pending: frozenset[str] = frozenset()

    @property
    def unsynced(self) -> frozenset[str]:
        return frozenset(name for name in self.members if name not in self.syncing)


@dataclass(frozen=True, slots=True)
class Stable:
    """All members have an assignment; `synced` are those that fetched it, None if all did."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str | None
    members: Members
    synced: PersistentSet | None = None
    pending: frozenset[str] = frozenset()

    @property
    def unsynced(self) -> frozenset[str]:
        """The members that have not fetched their assignment yet."""
        synced = self.synced
        return frozenset() if synced is None else frozenset(name for name in self.members if name not in synced)


Active: TypeAlias = PreparingRebalance | CompletingRebalance | Stable
"""The phases that have members."""

Group: TypeAlias = Dead | Empty | Active

MEMBERLESS: Final = (Dead, Empty)
"""The phases without members, for `isinstance`: unlike `Dead | Empty`, a tuple is not created with every request."""

NO_MEMBERS: Members = {}


def state_name(group: Group) -> str:
    return type(group).__name__


def group_members(group: Group) -> Members:
    """The members of the group; empty for Dead and Empty."""
    return NO_MEMBERS if isinstance(group, MEMBERLESS) else group.members


def pending_members(group: Group) -> frozenset[str]:
    """The pending member ids: given to newcomers that have not joined with them yet (KIP-394)."""
    return frozenset() if isinstance(group, Dead) else group.pending


def static_member_id(group: Group, instance_id: str) -> str | None:
    """The id of the static member with the instance id `instance_id` (KIP-345)."""
    for member in group_members(group).values():
        if member.group_instance_id == instance_id:
            return member.member_id
    return None


def with_member(members: Members, member: Member) -> Members:
    if len(members) <= MEMBERS_COPIED:
        return {**members, member.member_id: member}
    return (members if isinstance(members, PersistentMap) else PersistentMap(members)).plus(member.member_id, member)


def without_member(group: Active, member_id: str) -> Active:
    """The group without a member or a pending member id; if that was the leader, the first other member leads."""
    members = {key: member for key, member in group.members.items() if key != member_id}
    leader = group.leader if group.leader != member_id else next(iter(members), None)
    pending = group.pending - {member_id}
    match group:
        case PreparingRebalance():
            joined = group.joined.minus(member_id)
            return replace(group, members=members, leader=leader, pending=pending, joined=joined)
        case CompletingRebalance():
            syncing = group.syncing.minus(member_id)
            return replace(group, members=members, leader=leader or "", pending=pending, syncing=syncing)
        case Stable():
            synced = None if group.synced is None else group.synced.minus(member_id)
            return replace(group, members=members, leader=leader, pending=pending, synced=synced)
        case _:
            assert_never(group)
