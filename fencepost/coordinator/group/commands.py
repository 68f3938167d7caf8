"""The requests of a group's members, and the replies to them."""

from typing import TYPE_CHECKING, NamedTuple

from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from fencepost.coordinator.values import dataclass


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request, with the rules that its version implies."""

    group_id: str
    member_id: str
    """Empty for a newcomer."""
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """The session timeout for v0, which has none of its own."""
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    member_id_required: bool
    """v4+: a newcomer first receives a member id and has to join again with it (KIP-394)."""
    can_skip_assignment: bool
    """v9+: the reply may ask a returning static leader not to compute an assignment (KIP-814)."""
    reason: str | None = None
    """v8+: the client's reason to join (KIP-800); for the log."""

    def refused(self, error: ErrorCode) -> "JoinReply":
        return JoinReply(self.member_id, error)


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request; `assignments` by member id come from the leader only."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class MemberName(NamedTuple):
    """A member as LeaveGroup names it: by its id, by its instance id with an empty member id, or by both."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None
    """v5+: the client's reason to leave (KIP-800); for the log."""


class JoinedMember(NamedTuple):
    """One member in the reply to the leader's Join."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    member_id: str
    error: ErrorCode = ErrorCode.NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncReply:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class LeaveReply(NamedTuple):
    """The answer to a Leave: an error per member, in the order of the request."""

    errors: tuple[ErrorCode, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """Wakes the parked Join of `member_id`, if there is one."""

    member_id: str
    reply: JoinReply


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """Wakes the parked Sync of `member_id`, if there is one."""

    member_id: str
    reply: SyncReply
