"""Which timers groups have."""

from typing import NamedTuple

from fencepost.coordinator.group.turn import TimerKind


class TimerKey(NamedTuple):
    """Which timer of which group (and of which member, for sessions)."""

    kind: TimerKind
    group_id: str
    member_id: str = ""
