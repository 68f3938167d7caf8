"""The parts of a decision about a group, for both protocols."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from fencepost.coordinator.decision import Decision, ReplyT
from fencepost.coordinator.group.commands import JoinAnswer, JoinReply, LeaveReply, SyncAnswer, SyncReply
from fencepost.coordinator.group.records import GroupRecord, saved
from fencepost.coordinator.group.state import Empty, Group, Member, Stable
from fencepost.coordinator.group.timers import SESSION, SetTimer, TimerKind, new_timer

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from fencepost.coordinator.values import dataclass


@dataclass(frozen=True, slots=True)
class GroupChange:
    """The changes of a decision to a group besides its records; made in this order after the records are applied."""

    group: Group | None = None
    """The group's new state in the classic protocol; None if the records contain all of it."""
    timers: tuple[SetTimer, ...] = ()
    answers: tuple[JoinAnswer | SyncAnswer, ...] = ()
    """Replies to waiting requests; they are sent once the records are durable."""
    parked_as: str = ""
    """The member id under which the command is parked, if it has no reply yet."""
    refresh: tuple[int, int] | None = None
    """When a consumer group checks its topics again (ms since 1970), and the epoch of that decision."""
    resolve: frozenset[str] = frozenset()
    """Regular expressions to resolve right afterwards."""


GroupDecision: TypeAlias = Decision[GroupRecord, ReplyT, GroupChange]
"""`then` holds one `GroupChange`."""
ClassicDecision: TypeAlias = GroupDecision[JoinReply | SyncReply | LeaveReply | None]
"""A command without a reply waits until another command's decision answers it."""


def unchanged(group: Group, reply: JoinReply | SyncReply | LeaveReply | None = None) -> ClassicDecision:
    return Decision(reply, (), (GroupChange(group),))


class DecisionBuilder:
    """Collects the parts of one decision about a group."""

    __slots__ = ("answers", "group_id", "log", "timers")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.log: list[GroupRecord] = []
        self.timers: list[SetTimer] = []
        self.answers: list[JoinAnswer | SyncAnswer] = []

    def save(self, group: Stable | Empty, now_ms: int) -> None:
        self.log.append(saved(self.group_id, group, now_ms))

    def session(self, member: Member) -> None:
        self.timers.append(new_timer(SetTimer, (SESSION, member.session_timeout_ms, member.member_id, 0, False)))

    def end_sessions(self, member_ids: Iterable[str]) -> None:
        self.timers.extend(SetTimer(TimerKind.SESSION, None, member_id) for member_id in member_ids)

    def set(self, kind: TimerKind, delay_ms: int | None) -> None:
        self.timers.append(SetTimer(kind, delay_ms))

    def decision(
        self, group: Group, reply: JoinReply | SyncReply | LeaveReply | None = None, parked_as: str = ""
    ) -> ClassicDecision:
        change = GroupChange(group, tuple(self.timers), tuple(self.answers), parked_as)
        return Decision(reply, tuple(self.log), (change,))
