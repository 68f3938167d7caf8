"""What a decision about a group is made of, for both protocols."""

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
    """What a decision does to a group beside its records; in this order, once they are applied."""

    group: Group | None = None
    """What the group is from then on, of the classic protocol; None where its records say all."""
    timers: tuple[SetTimer, ...] = ()
    answers: tuple[JoinAnswer | SyncAnswer, ...] = ()
    """Waiting requests that end with this; they leave once the records are durable."""
    parked_as: str = ""
    """The member id that the command waits under, where it has no reply yet."""
    refresh: tuple[int, int] | None = None
    """When a consumer group looks at its topics again (ms since 1970), and the epoch that this was decided for."""
    resolve: frozenset[str] = frozenset()
    """Regular expressions to resolve right after."""


GroupDecision: TypeAlias = Decision[GroupRecord, ReplyT, GroupChange]
"""`then` holds one `GroupChange`."""
ClassicDecision: TypeAlias = GroupDecision[JoinReply | SyncReply | LeaveReply | None]
"""Without a reply, the command waits until the decision of another one answers it."""


def unchanged(group: Group, reply: JoinReply | SyncReply | LeaveReply | None = None) -> ClassicDecision:
    """A reply that changes nothing."""
    return Decision(reply, (), (GroupChange(group),))


class DecisionBuilder:
    """What a decision about a group has come to so far; lives inside one decision."""

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
        self.timers.append(new_timer(SetTimer, (SESSION, member.session_timeout_ms, member.member_id, 0, False)))

    def end_sessions(self, member_ids: Iterable[str]) -> None:
        """Nothing is awaited of these members any more."""
        self.timers.extend(SetTimer(TimerKind.SESSION, None, member_id) for member_id in member_ids)

    def set(self, kind: TimerKind, delay_ms: int | None) -> None:
        """Starts or stops the group's join or sync timer."""
        self.timers.append(SetTimer(kind, delay_ms))

    def decision(
        self, group: Group, reply: JoinReply | SyncReply | LeaveReply | None = None, parked_as: str = ""
    ) -> ClassicDecision:
        """The finished decision of a classic group."""
        change = GroupChange(group, tuple(self.timers), tuple(self.answers), parked_as)
        return Decision(reply, tuple(self.log), (change,))
