"""The timers of groups, and how a decision sets them."""

from enum import StrEnum
from typing import Final, NamedTuple


class TimerKind(StrEnum):
    """The event that a group waits for; only consumer groups have the last three."""

    SESSION = "session"
    """One member sends a heartbeat, or another request that counts as one."""
    JOIN = "join"
    """The members rejoin, or newcomers join in the initial delay."""
    SYNC = "sync"
    """Every member fetches its assignment."""
    REBALANCE = "rebalance"
    """One member gives its partitions back."""
    CLASSIC_JOIN = "classic-join"
    """A classic member rejoins."""
    CLASSIC_SYNC = "classic-sync"
    """A classic member fetches its assignment."""

    __hash__ = str.__hash__
    """Enum's own is a slow Python function, and every set timer is looked up by its kind."""


SESSION: Final = TimerKind.SESSION
REBALANCE: Final = TimerKind.REBALANCE
"""For the path of every request: reading a member of an enum takes twenty times as long as reading a name."""


class SetTimer(NamedTuple):
    """Restarts a timer, or stops it if `delay_ms` is None."""

    kind: TimerKind
    delay_ms: int | None
    member_id: str = ""
    """Set for a timer of one member."""
    epoch: int = 0
    """For REBALANCE: if the member is still in this epoch when the timer expires, it is removed."""
    if_absent: bool = False
    """Do not restart it if it runs already."""


class TimerKey(NamedTuple):
    """The kind of a timer, its group, and its member if it has one."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


new_key = new_timer = tuple.__new__
"""The constructor of a named tuple is a slow Python function, and every heartbeat sets a timer."""


def within(since_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether an interval is still running, by the wall clock.

    It is over if that clock went back to before its begin. Otherwise it would last for as long as the clock went back.
    """
    return since_ms <= now_ms < since_ms + interval_ms
