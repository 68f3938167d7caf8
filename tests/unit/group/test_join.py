"""Who gets into a group, and how (rows G1, G2; KIP-394, KIP-345, KIP-814): the pure decisions, one rule at a time."""

from dataclasses import replace

import pytest

from fencepost.coordinator.group.classic import heartbeat, leave, sync
from fencepost.coordinator.group.commands import JoinAnswer, JoinReply, MemberName, SyncAnswer, SyncReply
from fencepost.coordinator.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from fencepost.coordinator.group.decision import unchanged
from fencepost.coordinator.group.join import join
from fencepost.coordinator.group.rebalance import expire_join, expire_session, expire_sync, select_protocol
from fencepost.coordinator.group.records import GroupSaved
from fencepost.coordinator.group.state import (
    CompletingRebalance,
    Dead,
    Empty,
    Group,
    Member,
    PreparingRebalance,
    Stable,
)
from fencepost.coordinator.group.timers import SetTimer, TimerKind
from fencepost.protocol.errors import ErrorCode
from tests.unit.group import kit
from tests.unit.group.machine import CONFIG, NOW, alone, delay, first, pair, reply_of


def test_the_first_member_leads_the_first_generation_at_once_without_an_initial_delay() -> None:
    turn = first()
    assert isinstance(turn.then[0].group, CompletingRebalance)
    reply = reply_of(turn, "a")
    assert isinstance(reply, JoinReply)
    assert (reply.generation, reply.leader, reply.member_id, reply.protocol) == (1, "a", "a", "range")
    assert [member.member_id for member in reply.members] == ["a"]
    assert delay(turn, TimerKind.SESSION, "a") == 10_000
    assert delay(turn, TimerKind.SYNC) == 60_000


def test_an_unknown_group_has_no_members_to_come_back() -> None:
    turn = join(Dead(), kit.join("a"), "x", CONFIG, NOW)
    assert turn == unchanged(Dead(), JoinReply("a", ErrorCode.UNKNOWN_MEMBER_ID))


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(session_timeout_ms: int) -> None:
    turn = first(session_timeout_ms=session_timeout_ms)
    assert turn == unchanged(Dead(), JoinReply("", ErrorCode.INVALID_SESSION_TIMEOUT))


def test_a_session_timeout_is_looked_at_before_the_group_g1() -> None:
    turn = join(Dead(), kit.join("a", session_timeout_ms=1), "x", CONFIG, NOW)
    assert turn.reply == JoinReply("a", ErrorCode.INVALID_SESSION_TIMEOUT)


def test_whoever_comes_when_all_others_have_left_the_initial_delay_is_let_in_g1() -> None:
    config = replace(CONFIG, group_initial_rebalance_delay_ms=3000)
    group = join(Dead(), kit.join(member_id_required=False), "a", config, NOW).then[0].group
    group = leave("g", group, (MemberName("a"),), NOW).then[0].group
    assert isinstance(group, PreparingRebalance)
    turn = join(group, kit.join(member_id_required=False, protocols=(("sticky", b""),)), "b", config, NOW)
    assert (turn.reply, turn.then[0].parked_as) == (None, "b")
    other = join(group, kit.join(member_id_required=False, protocol_type="connect"), "b", config, NOW)
    assert other.reply == JoinReply("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def test_a_newcomer_is_given_an_id_to_come_back_with_kip_394() -> None:
    turn = join(Dead(), kit.join(), "a", CONFIG, NOW)
    assert turn.reply == JoinReply("a", ErrorCode.MEMBER_ID_REQUIRED)
    assert turn.then[0].group == Empty(pending=frozenset("a"))
    assert turn.then[0].timers == (SetTimer(TimerKind.SESSION, 10_000, "a"),)
    again = join(turn.then[0].group, kit.join("a"), "", CONFIG, NOW)
    assert isinstance(again.then[0].group, CompletingRebalance)
    assert not again.then[0].group.pending


def test_a_promised_id_that_is_never_taken_expires() -> None:
    group = join(Dead(), kit.join(), "a", CONFIG, NOW).then[0].group
    assert expire_session("g", group, "a", NOW).then[0].group == Empty()


def test_a_promised_id_keeps_a_rebalance_waiting_until_it_expires_or_leaves() -> None:
    group = join(alone(), kit.join(), "b", CONFIG, NOW).then[0].group
    group = join(group, kit.join("a"), "", CONFIG, NOW).then[0].group
    assert isinstance(group, PreparingRebalance)
    assert group.joined == {"a"}
    for end in (expire_session("g", group, "b", NOW), leave("g", group, (MemberName("b"),), NOW)):
        assert isinstance(end.then[0].group, CompletingRebalance)
        assert reply_of(end, "a").error is ErrorCode.NONE
    taken = join(group, kit.join("b"), "", CONFIG, NOW)
    assert isinstance(taken.then[0].group, CompletingRebalance)
    assert list(taken.then[0].group.members) == ["a", "b"]


def test_a_second_member_makes_everybody_rejoin() -> None:
    turn = join(alone(), kit.join(member_id_required=False), "b", CONFIG, NOW)
    assert isinstance(turn.then[0].group, PreparingRebalance)
    assert turn.reply is None
    assert turn.then[0].parked_as == "b"
    assert delay(turn, TimerKind.JOIN) == 60_000
    assert delay(turn, TimerKind.SESSION, "b") == NEW_MEMBER_JOIN_TIMEOUT_MS
    assert heartbeat(turn.then[0].group, "a", None, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    end = join(turn.then[0].group, kit.join("a"), "", CONFIG, NOW)
    leader, follower = reply_of(end, "a"), reply_of(end, "b")
    assert isinstance(leader, JoinReply)
    assert isinstance(follower, JoinReply)
    assert leader.generation == follower.generation == 2
    assert [member.member_id for member in leader.members] == ["a", "b"]
    assert follower.members == ()
    assert follower.leader == "a"


def test_members_that_do_not_rejoin_in_time_are_dropped_and_the_next_leads() -> None:
    group = join(alone(), kit.join(member_id_required=False), "b", CONFIG, NOW).then[0].group
    turn = expire_join("g", group, CONFIG, NOW)
    assert isinstance(turn.then[0].group, CompletingRebalance)
    assert turn.then[0].group.leader == "b"
    assert list(turn.then[0].group.members) == ["b"]
    assert delay(turn, TimerKind.SESSION, "a") is None
    assert heartbeat(turn.then[0].group, "a", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_members_that_do_not_rejoin_in_time_keep_their_places_kip_345() -> None:
    group = alone(group_instance_id="i")
    group2 = join(group, kit.join(member_id_required=False), "b", CONFIG, NOW).then[0].group
    turn = expire_join("g", group2, CONFIG, NOW)
    assert isinstance(turn.then[0].group, CompletingRebalance)
    assert turn.then[0].group.leader == "b"
    assert list(turn.then[0].group.members) == ["a", "b"]
    assert [answer.member_id for answer in turn.then[0].answers] == ["b"]


def test_a_rebalance_that_no_member_joins_waits_once_more() -> None:
    group = PreparingRebalance(1, "consumer", "range", "a", alone(group_instance_id="i").members)
    turn = expire_join("g", group, CONFIG, NOW)
    assert turn.then[0].group == group
    assert delay(turn, TimerKind.JOIN) == 60_000


@pytest.mark.parametrize(
    "changes", [{"protocol_type": "connect"}, {"protocols": (("sticky", b""),)}, {"protocols": ()}]
)
def test_a_member_without_a_common_protocol_is_refused(changes: dict[str, object]) -> None:
    group = alone()
    turn = join(group, kit.join(member_id_required=False, **changes), "b", CONFIG, NOW)
    assert turn == unchanged(group, JoinReply("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL))


@pytest.mark.parametrize(
    ("spoken", "let_in"), [("range", False), ("sticky", True), ("range sticky", True), ("other sticky", True)]
)
def test_one_common_protocol_must_be_left_for_all_g1(spoken: str, let_in: bool) -> None:
    """The first member speaks two, the second only one of them: a third that shares the other one does not fit."""
    group: Group = Dead()
    for member_id, names in (("a", "range sticky"), ("b", "sticky")):
        protocols = tuple((name, b"") for name in names.split())
        group = (
            join(group, kit.join(member_id_required=False, protocols=protocols), member_id, CONFIG, NOW).then[0].group
        )
    protocols = tuple((name, b"") for name in spoken.split())
    turn = join(group, kit.join(member_id_required=False, protocols=protocols), "c", CONFIG, NOW)
    assert turn.reply == (None if let_in else JoinReply("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL))


@pytest.mark.parametrize("changes", [{"protocol_type": ""}, {"protocols": ()}])
def test_an_empty_group_needs_a_protocol_type_and_a_protocol(changes: dict[str, object]) -> None:
    assert first(**changes).reply == JoinReply("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def test_the_protocol_with_the_most_votes_among_the_common_ones_is_chosen() -> None:
    def member(member_id: str, *names: str) -> Member:
        return Member(member_id, None, "c", "h", 1, 1, tuple((name, b"") for name in names))

    members = [member("1", "x", "a", "b"), member("2", "b", "a"), member("3", "b", "a", "y")]
    assert select_protocol({one.member_id: one for one in members}) == "b"
    assert select_protocol({one.member_id: one for one in members[:2]}) == "a"


def test_the_group_has_a_largest_size() -> None:
    config = replace(CONFIG, group_max_size=1)
    group = alone()
    turn = join(group, kit.join(member_id_required=False), "b", config, NOW)
    assert turn == unchanged(group, JoinReply("", ErrorCode.GROUP_MAX_SIZE_REACHED))
    assert isinstance(join(group, kit.join("a"), "", config, NOW).then[0].group, CompletingRebalance)


def test_a_promised_id_is_taken_back_where_the_group_is_full_meanwhile_g1() -> None:
    group = join(alone(), kit.join(), "b", CONFIG, NOW).then[0].group
    turn = join(group, kit.join("b"), "", replace(CONFIG, group_max_size=1), NOW)
    assert turn.reply == JoinReply("", ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert isinstance(turn.then[0].group, Stable)
    assert not turn.then[0].group.pending
    assert delay(turn, TimerKind.SESSION, "b") is None


def test_while_members_rejoin_the_last_ones_of_a_group_too_large_are_turned_away() -> None:
    group: Group = join(pair(), kit.join("a"), "", CONFIG, NOW).then[0].group
    assert isinstance(group, PreparingRebalance)
    turn = join(group, kit.join("b"), "", replace(CONFIG, group_max_size=1), NOW)
    assert turn.reply == JoinReply("", ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert isinstance(turn.then[0].group, CompletingRebalance)
    assert list(turn.then[0].group.members) == ["a"]
    assert delay(turn, TimerKind.SESSION, "b") is None


def test_a_follower_that_joins_again_unchanged_is_told_the_generation_it_has() -> None:
    group = pair()
    turn = join(group, kit.join("b"), "", CONFIG, NOW)
    assert turn.then[0].group == group
    assert turn.reply == JoinReply("b", ErrorCode.NONE, 2, "consumer", "range", "a")


@pytest.mark.parametrize(("member_id", "protocols"), [("a", (("range", b"m"),)), ("b", (("range", b"other"),))])
def test_a_leader_or_a_changed_member_that_joins_again_starts_a_rebalance(
    member_id: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    turn = join(pair(), kit.join(member_id, protocols=protocols), "", CONFIG, NOW)
    assert isinstance(turn.then[0].group, PreparingRebalance)
    assert turn.then[0].group.joined == {member_id}
    assert turn.then[0].group.members[member_id].protocols == protocols


def test_a_join_repeated_before_the_sync_is_answered_again_to_the_leader_with_all_members() -> None:
    group = first().then[0].group
    turn = join(group, kit.join("a"), "", CONFIG, NOW)
    assert turn.then[0].group == group
    assert isinstance(turn.reply, JoinReply)
    assert [member.member_id for member in turn.reply.members] == ["a"]


def test_a_change_of_metadata_before_the_sync_sends_the_syncing_members_back() -> None:
    group = join(alone(), kit.join(member_id_required=False), "b", CONFIG, NOW).then[0].group
    group = join(group, kit.join("a"), "", CONFIG, NOW).then[0].group
    group = sync(group, kit.sync("b", 2), NOW).then[0].group
    turn = join(group, kit.join("a", protocols=(("range", b"new"),)), "", CONFIG, NOW)
    assert isinstance(turn.then[0].group, PreparingRebalance)
    assert reply_of(turn, "b") == SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
    assert delay(turn, TimerKind.SESSION, "b") == 10_000
    assert delay(turn, TimerKind.SYNC) is None


def test_a_stranger_is_not_let_in_with_an_id_of_its_own() -> None:
    assert join(pair(), kit.join("x"), "", CONFIG, NOW).reply == JoinReply("x", ErrorCode.UNKNOWN_MEMBER_ID)
    empty = Empty(3, "consumer", NOW)
    assert join(empty, kit.join("x"), "", CONFIG, NOW).reply == JoinReply("x", ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_static_member_gets_its_place_without_a_promise_kip_345() -> None:
    turn = join(Dead(), kit.join(group_instance_id="i"), "a", CONFIG, NOW)
    assert isinstance(turn.then[0].group, CompletingRebalance)


def test_a_static_member_that_comes_back_to_a_stable_group_gets_a_new_id_and_no_rebalance_kip_345() -> None:
    group = pair(group_instance_id="i")
    turn = join(group, kit.join(group_instance_id="i"), "b2", CONFIG, NOW)
    assert isinstance(turn.then[0].group, Stable)
    assert list(turn.then[0].group.members) == ["a", "b2"]
    assert turn.then[0].group.members["b2"].assignment == b"B"
    assert JoinAnswer("b", JoinReply("b", ErrorCode.FENCED_INSTANCE_ID)) in turn.then[0].answers
    assert reply_of(turn, "b2") == JoinReply("b2", ErrorCode.NONE, 2, "consumer", "range", "a")
    [saved] = turn.log
    assert isinstance(saved, GroupSaved)
    assert [member.member_id for member in saved.members] == ["a", "b2"]
    assert delay(turn, TimerKind.SESSION, "b") is None
    assert heartbeat(turn.then[0].group, "b", "i", 2) is ErrorCode.FENCED_INSTANCE_ID
    assert sync(turn.then[0].group, kit.sync("b2", 2), NOW).reply == SyncReply(
        ErrorCode.NONE, "consumer", "range", b"B"
    )


def test_a_static_leader_that_comes_back_skips_the_assignment_kip_814() -> None:
    group = alone(group_instance_id="i")
    new = join(group, kit.join(group_instance_id="i"), "a2", CONFIG, NOW)
    reply = reply_of(new, "a2")
    assert isinstance(reply, JoinReply)
    assert reply.skip_assignment
    assert reply.leader == "a2"
    assert [member.member_id for member in reply.members] == ["a2"]
    old = join(group, kit.join(group_instance_id="i", can_skip_assignment=False), "a2", CONFIG, NOW)
    reply = reply_of(old, "a2")
    assert isinstance(reply, JoinReply)
    assert not reply.skip_assignment
    assert reply.leader == "a"
    assert reply.members == ()


def test_a_static_member_that_comes_back_with_another_protocol_starts_a_rebalance() -> None:
    group = alone(group_instance_id="i", protocols=(("range", b""), ("sticky", b"")))
    command = kit.join(group_instance_id="i", protocols=(("sticky", b""), ("range", b"")))
    turn = join(group, command, "a2", CONFIG, NOW)
    assert isinstance(turn.then[0].group, CompletingRebalance)
    assert turn.then[0].group.protocol == "sticky"


def test_a_static_member_that_comes_back_before_the_sync_starts_the_rebalance_over() -> None:
    group = join(alone(), kit.join(member_id_required=False, group_instance_id="i"), "b", CONFIG, NOW).then[0].group
    group = join(group, kit.join("a"), "", CONFIG, NOW).then[0].group
    group = sync(group, kit.sync("b", 2), NOW).then[0].group
    turn = join(group, kit.join(group_instance_id="i"), "b2", CONFIG, NOW)
    assert isinstance(turn.then[0].group, PreparingRebalance)
    assert turn.then[0].group.joined == {"b2"}
    assert SyncAnswer("b", SyncReply(ErrorCode.FENCED_INSTANCE_ID)) in turn.then[0].answers


def test_a_static_member_that_comes_back_while_others_rejoin_fences_its_parked_self() -> None:
    group: Group = (
        join(pair(), kit.join(group_instance_id="i", member_id_required=False), "s", CONFIG, NOW).then[0].group
    )
    turn = join(group, kit.join(group_instance_id="i"), "s2", CONFIG, NOW)
    assert isinstance(turn.then[0].group, PreparingRebalance)
    assert turn.then[0].group.joined == {"s2"}
    assert JoinAnswer("s", JoinReply("s", ErrorCode.FENCED_INSTANCE_ID)) in turn.then[0].answers


@pytest.mark.parametrize(
    ("member_id", "error"), [("zombie", ErrorCode.FENCED_INSTANCE_ID), ("a", ErrorCode.FENCED_INSTANCE_ID)]
)
def test_whoever_uses_the_place_of_another_is_fenced(member_id: str, error: ErrorCode) -> None:
    group = pair(group_instance_id="i")
    assert join(group, kit.join(member_id, group_instance_id="i"), "", CONFIG, NOW).reply == JoinReply(member_id, error)
    assert heartbeat(group, member_id, "i", 2) is error
    assert heartbeat(group, member_id, "unheard-of", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_initial_delay_is_extended_by_newcomers_up_to_the_rebalance_timeout() -> None:
    config = replace(CONFIG, group_initial_rebalance_delay_ms=3000)
    command = kit.join(member_id_required=False, rebalance_timeout_ms=7000)
    turn = join(Dead(), command, "a", config, NOW)
    assert delay(turn, TimerKind.JOIN) == 3000
    group = join(turn.then[0].group, command, "b", config, NOW).then[0].group
    turn = expire_join("g", group, config, NOW)
    assert delay(turn, TimerKind.JOIN) == 3000
    group = join(turn.then[0].group, command, "c", config, NOW).then[0].group
    turn = expire_join("g", group, config, NOW)
    assert delay(turn, TimerKind.JOIN) == 1000
    group = join(turn.then[0].group, command, "d", config, NOW).then[0].group
    turn = expire_join("g", group, config, NOW)
    assert isinstance(turn.then[0].group, CompletingRebalance)
    assert len(turn.then[0].answers) == 4


def test_members_that_never_sync_are_dropped() -> None:
    group = join(alone(), kit.join(member_id_required=False), "b", CONFIG, NOW).then[0].group
    group = join(group, kit.join("a"), "", CONFIG, NOW).then[0].group
    stable = sync(group, kit.sync("a", 2, assignments=(("a", b"A"), ("b", b"B"))), NOW).then[0].group
    assert isinstance(stable, Stable)
    assert stable.unsynced == {"b"}
    turn = expire_sync("g", stable, NOW)
    assert isinstance(turn.then[0].group, PreparingRebalance)
    assert list(turn.then[0].group.members) == ["a"]
    assert expire_sync("g", pair(), NOW) == unchanged(pair())


def test_a_member_in_a_parked_join_is_alive_except_a_new_one() -> None:
    group: Group = join(alone(), kit.join(member_id_required=False), "b", CONFIG, NOW).then[0].group
    turn = expire_session("g", group, "b", NOW)
    assert JoinAnswer("b", JoinReply("", ErrorCode.UNKNOWN_MEMBER_ID)) in turn.then[0].answers
    group = join(pair(), kit.join("b", protocols=(("range", b"n"),)), "", CONFIG, NOW).then[0].group
    assert expire_session("g", group, "b", NOW).then[0].group == group
