"""How members sync, live, and leave (row G1; KIP-345, KIP-559): the pure decisions, one rule at a time."""

from dataclasses import replace

import pytest

from fencepost.coordinator.group.classic import heartbeat, leave, sync
from fencepost.coordinator.group.commands import JoinAnswer, JoinReply, LeaveReply, MemberName, SyncAnswer, SyncReply
from fencepost.coordinator.group.join import join
from fencepost.coordinator.group.records import GroupSaved
from fencepost.coordinator.group.state import Dead, Empty, Group
from fencepost.coordinator.group.timers import TimerKind
from fencepost.protocol.errors import ErrorCode
from tests.unit.group import kit
from tests.unit.group.machine import CONFIG, NOW, alone, delay, pair, reply_of


def test_the_last_member_leaves_an_empty_group_that_is_written_down() -> None:
    turn = leave("g", alone(), (MemberName("a"),), NOW)
    assert turn.then[0].group == Empty(2, "consumer", NOW)
    assert turn.log == (GroupSaved("g", "consumer", 2, None, None, NOW),)
    assert turn.reply == LeaveReply((ErrorCode.NONE,))


def test_many_members_leave_at_once_with_an_error_each_kip_345() -> None:
    group = pair(group_instance_id="i")
    names = (MemberName("x"), MemberName("", "i"), MemberName("", "?"), MemberName("a", "i"), MemberName("a"))
    turn = leave("g", group, names, NOW)
    assert turn.reply == LeaveReply(
        (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NONE,
        )
    )
    assert isinstance(turn.then[0].group, Empty)
    assert leave("g", Dead(), (MemberName("a"),), NOW).reply == LeaveReply((ErrorCode.UNKNOWN_MEMBER_ID,))


def test_a_parked_member_that_leaves_is_told_so() -> None:
    group: Group = join(alone(), kit.join(member_id_required=False), "b", CONFIG, NOW).then[0].group
    turn = leave("g", group, (MemberName("b"),), NOW)
    assert JoinAnswer("b", JoinReply("", ErrorCode.UNKNOWN_MEMBER_ID)) in turn.then[0].answers
    group = join(group, kit.join("a"), "", CONFIG, NOW).then[0].group
    group = sync(group, kit.sync("b", 2), NOW).then[0].group
    turn = leave("g", group, (MemberName("b"),), NOW)
    assert SyncAnswer("b", SyncReply(ErrorCode.UNKNOWN_MEMBER_ID)) in turn.then[0].answers


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 3}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect", "protocol": "range"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol": "range"}, ErrorCode.NONE),
    ],
)
def test_a_sync_is_checked(changes: dict[str, object], error: ErrorCode) -> None:
    reply = sync(pair(), replace(kit.sync("b", 2), **changes), NOW).reply  # type: ignore[arg-type]
    assert isinstance(reply, SyncReply)
    assert reply.error is error


def test_a_sync_in_no_group_or_in_a_rebalance_is_refused() -> None:
    assert sync(Dead(), kit.sync("a", 1), NOW).reply == SyncReply(ErrorCode.UNKNOWN_MEMBER_ID)
    assert sync(Empty(1), kit.sync("a", 1), NOW).reply == SyncReply(ErrorCode.UNKNOWN_MEMBER_ID)
    preparing = join(pair(), kit.join("a"), "", CONFIG, NOW).then[0].group
    assert sync(preparing, kit.sync("b", 2), NOW).reply == SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)


def test_whom_the_leader_forgets_gets_an_empty_assignment() -> None:
    group = join(alone(), kit.join(member_id_required=False), "b", CONFIG, NOW).then[0].group
    group = join(group, kit.join("a"), "", CONFIG, NOW).then[0].group
    group = sync(group, kit.sync("b", 2), NOW).then[0].group
    turn = sync(group, kit.sync("a", 2, assignments=(("a", b"A"), ("gone", b"?"))), NOW)
    assert reply_of(turn, "b") == SyncReply(ErrorCode.NONE, "consumer", "range", b"")
    assert delay(turn, TimerKind.SYNC) is None


@pytest.mark.parametrize(
    ("member_id", "generation", "error"),
    [
        ("a", 2, ErrorCode.NONE),
        ("x", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 1, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_heartbeat_is_checked(member_id: str, generation: int, error: ErrorCode) -> None:
    assert heartbeat(pair(), member_id, None, generation) is error
    assert heartbeat(Empty(2), member_id, None, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(Dead(), member_id, None, generation) is ErrorCode.UNKNOWN_MEMBER_ID
