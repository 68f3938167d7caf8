"""What members of a group ask, what they are told, and what one such turn changes."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from fencepost.coordinator.group.records import GroupRecord, saved
from fencepost.coordinator.group.state import Empty, Group, Member, Stable
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from fencepost.coordinator.group.values import dataclass


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request, with what its version implies."""

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
    """v4+: a newcomer is given an id first and has to come again with it (KIP-394)."""
    can_skip_assignment: bool
    """v9+: a returning static leader may be told not to compute an assignment (KIP-814)."""
    reason: str | None = None
    """v8+: why the client says it joins (KIP-800); for the log."""

    def refused(self, error: ErrorCode) -> "JoinReply":
        """The reply that says why not."""
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
    """v5+: why the client says it leaves (KIP-800); for the log."""


class JoinedMember(NamedTuple):
    """One member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The answer to a Join."""

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
    """The answer to a Sync."""

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


class TimerKind(StrEnum):
    """What a group waits for; the last three are those of consumer groups only."""

    SESSION = "session"
    """A sign of life of one member."""
    JOIN = "join"
    """The members to rejoin, or newcomers in the initial delay."""
    SYNC = "sync"
    """Every member to fetch its assignment."""
    REBALANCE = "rebalance"
    """One member to give its partitions back."""
    CLASSIC_JOIN = "classic-join"
    """A classic member to rejoin."""
    CLASSIC_SYNC = "classic-sync"
    """A classic member to fetch what it was given."""

    __hash__ = str.__hash__
    """Enum's own is a function in Python, and each timer that is set is looked up by its kind."""


class SetTimer(NamedTuple):
    """Starts a timer over, or stops it where `delay_ms` is None; `member_id` for SESSION only."""

    kind: TimerKind
    delay_ms: int | None
    member_id: str = ""


_new_timer = tuple.__new__
"""The constructor of a named tuple is a function in Python, and each member of a generation is given a timer."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one command or one timer does to a group.

    `log` is appended first; then `group` is what the group is, timers are set, and the answers may leave once the log
    is durable. `reply` answers the command itself; None parks it until an answer for its member comes.
    """

    group: Group
    reply: JoinReply | SyncReply | LeaveReply | None = None
    log: tuple[GroupRecord, ...] = ()
    timers: tuple[SetTimer, ...] = ()
    answers: tuple[JoinAnswer | SyncAnswer, ...] = ()
    parked_as: str = ""
    """The member id that the parked command waits under."""


class Out:
    """What a turn has put out so far; lives inside one decision."""

    __slots__ = ("answers", "group_id", "log", "timers")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.log: list[GroupRecord] = []
        self.timers: list[SetTimer] = []
        self.answers: list[JoinAnswer | SyncAnswer] = []

    def save(self, group: Stable | Empty, now_ms: int) -> None:
        """Writes the group down as it is."""
        self.log.append(saved(self.group_id, group, now_ms))

    def session(self, member: Member) -> None:
        """Starts the member's session over."""
        self.timers.append(_new_timer(SetTimer, (TimerKind.SESSION, member.session_timeout_ms, member.member_id)))

    def end_sessions(self, member_ids: Iterable[str]) -> None:
        """Nobody waits for these members any more."""
        self.timers.extend(SetTimer(TimerKind.SESSION, None, member_id) for member_id in member_ids)

    def set(self, kind: TimerKind, delay_ms: int | None) -> None:
        """Starts or stops the group's join or sync timer."""
        self.timers.append(SetTimer(kind, delay_ms))

    def turn(self, group: Group, reply: JoinReply | SyncReply | LeaveReply | None = None, parked_as: str = "") -> Turn:
        """The finished turn."""
        return Turn(group, reply, tuple(self.log), tuple(self.timers), tuple(self.answers), parked_as)
