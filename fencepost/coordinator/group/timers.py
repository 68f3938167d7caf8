"""Which timers groups have, and how a decision sets them."""

from enum import StrEnum
from typing import Final, NamedTuple


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


SESSION: Final = TimerKind.SESSION
REBALANCE: Final = TimerKind.REBALANCE
"""For what every request does: reading a member of an enum takes twenty times as long as reading a name."""


class SetTimer(NamedTuple):
    """Starts a timer over, or stops it where `delay_ms` is None."""

    kind: TimerKind
    delay_ms: int | None
    member_id: str = ""
    """For those that are of one member."""
    epoch: int = 0
    """For REBALANCE: the epoch in which the member must not be found when the time is over."""
    if_absent: bool = False
    """Leave it alone where it runs already."""


class TimerKey(NamedTuple):
    """Which timer of which group (and of which member, for those that are of one)."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


new_key = new_timer = tuple.__new__
"""The constructor of a named tuple is a function in Python, and every heartbeat sets a timer."""
