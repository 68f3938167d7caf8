"""Groups brought to a phase by the decisions themselves, and what their turns say."""

from fencepost.coordinator.group.classic import sync
from fencepost.coordinator.group.commands import JoinReply, SyncReply
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.decision import ClassicDecision
from fencepost.coordinator.group.join import join
from fencepost.coordinator.group.state import Dead, Stable
from fencepost.coordinator.group.timers import TimerKind
from tests.kit.clocks import START_MS
from tests.unit.group import kit

CONFIG = GroupConfig()
NOW = START_MS


def first(new_id: str = "a", **changes: object) -> ClassicDecision:
    return join(Dead(), kit.join(member_id_required=False, **changes), new_id, CONFIG, NOW)


def alone(**changes: object) -> Stable:
    """A stable group of one member, `a`."""
    group = first(**changes).then[0].group
    group = sync(group, kit.sync("a", 1, assignments=(("a", b"A"),)), NOW).then[0].group
    assert isinstance(group, Stable)
    return group


def pair(**changes: object) -> Stable:
    """A stable group of `a`, who leads, and `b`."""
    group = join(alone(), kit.join(member_id_required=False, **changes), "b", CONFIG, NOW).then[0].group
    group = join(group, kit.join("a"), "", CONFIG, NOW).then[0].group
    group = sync(group, kit.sync("b", 2), NOW).then[0].group
    group = sync(group, kit.sync("a", 2, assignments=(("a", b"A"), ("b", b"B"))), NOW).then[0].group
    assert isinstance(group, Stable)
    return group


def reply_of(turn: ClassicDecision, member_id: str) -> JoinReply | SyncReply:
    [reply] = [answer.reply for answer in turn.then[0].answers if answer.member_id == member_id]
    return reply


def delay(turn: ClassicDecision, kind: TimerKind, member_id: str = "") -> int | None:
    found = [timer for timer in turn.then[0].timers if timer.kind is kind and timer.member_id == member_id]
    assert found, f"{kind} of {member_id!r} is not touched"
    return found[-1].delay_ms
