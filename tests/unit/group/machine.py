"""Groups brought to a phase by the decisions themselves, and what their turns say."""

from fencepost.coordinator.group.classic import sync
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.join import join
from fencepost.coordinator.group.state import Dead, Stable
from fencepost.coordinator.group.turn import JoinReply, SyncReply, TimerKind, Turn
from tests.unit.group import kit

CONFIG = GroupConfig()
NOW = kit.START_MS


def first(new_id: str = "a", **changes: object) -> Turn:
    return join(Dead(), kit.join(member_id_required=False, **changes), new_id, CONFIG, NOW)


def alone(**changes: object) -> Stable:
    """A stable group of one member, `a`."""
    group = first(**changes).group
    group = sync(group, kit.sync("a", 1, assignments=(("a", b"A"),)), NOW).group
    assert isinstance(group, Stable)
    return group


def pair(**changes: object) -> Stable:
    """A stable group of `a`, who leads, and `b`."""
    group = join(alone(), kit.join(member_id_required=False, **changes), "b", CONFIG, NOW).group
    group = join(group, kit.join("a"), "", CONFIG, NOW).group
    group = sync(group, kit.sync("b", 2), NOW).group
    group = sync(group, kit.sync("a", 2, assignments=(("a", b"A"), ("b", b"B"))), NOW).group
    assert isinstance(group, Stable)
    return group


def reply_of(turn: Turn, member_id: str) -> JoinReply | SyncReply:
    [reply] = [answer.reply for answer in turn.answers if answer.member_id == member_id]
    return reply


def delay(turn: Turn, kind: TimerKind, member_id: str = "") -> int | None:
    found = [timer for timer in turn.timers if timer.kind is kind and timer.member_id == member_id]
    assert found, f"{kind} of {member_id!r} is not touched"
    return found[-1].delay_ms
