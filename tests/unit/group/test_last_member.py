"""Each phase of a rebalance ends with the last member that it waits for (rows G1, G2)."""

from dataclasses import replace

from fencepost.coordinator.group.classic import assignment, sync
from fencepost.coordinator.group.commands import JoinReply, SyncReply
from fencepost.coordinator.group.decision import DecisionBuilder
from fencepost.coordinator.group.join import join
from fencepost.coordinator.group.rebalance import rebalance_or_complete
from fencepost.coordinator.group.state import CompletingRebalance, PreparingRebalance, Stable, with_member
from fencepost.coordinator.group.timers import SetTimer, TimerKind
from fencepost.protocol.errors import ErrorCode
from tests.unit.group import kit
from tests.unit.group.machine import CONFIG, NOW, pair

MEMBERS = ("a", "b", "c", "d")


def rebalancing() -> PreparingRebalance:
    """A group of four that goes from its second generation to its third; no member has joined again yet."""
    group = pair()
    members = group.members
    for member_id in ("c", "d"):
        members = with_member(members, replace(members["b"], member_id=member_id))
    after = rebalance_or_complete(replace(group, members=members), None, NOW, DecisionBuilder("g"))
    assert isinstance(after, PreparingRebalance)
    return after


def stable() -> Stable:
    """The same group in its third generation; only its leader has fetched its assignment."""
    group = join(rebalancing(), kit.join("a"), "", CONFIG, NOW).then[0].group
    for member_id in ("b", "c", "d"):
        group = join(group, kit.join(member_id), "", CONFIG, NOW).then[0].group
    given_out = tuple((one, one.encode()) for one in MEMBERS)
    after = sync(group, kit.sync("a", 3, assignments=given_out), NOW).then[0].group
    assert isinstance(after, Stable)
    return after


def test_the_last_join_completes_the_join_phase_g2() -> None:
    """The others only wait: with new metadata, and with new timeouts."""
    group = rebalancing()
    for count, member_id in enumerate(("a", "b", "c"), 1):
        command = kit.join(member_id, protocols=(("range", b"new"),), session_timeout_ms=20_000)
        turn = join(group, command, "", CONFIG, NOW)
        assert isinstance(turn.then[0].group, PreparingRebalance)
        group = turn.then[0].group
        assert (turn.reply, turn.log, turn.then[0].timers, turn.then[0].answers, turn.then[0].parked_as) == (
            None,
            (),
            (),
            (),
            member_id,
        )
        assert list(group.joined) == list(MEMBERS[:count])
        now = group.members[member_id]
        assert (now.protocols, now.session_timeout_ms) == (command.protocols, command.session_timeout_ms)
    last = join(group, kit.join("d"), "", CONFIG, NOW)
    assert isinstance(last.then[0].group, CompletingRebalance)
    assert [answer.member_id for answer in last.then[0].answers] == list(MEMBERS)


def test_a_session_out_of_bounds_is_refused_while_the_group_waits_g2() -> None:
    brief = kit.join("b", session_timeout_ms=1)
    assert join(rebalancing(), brief, "", CONFIG, NOW).reply == JoinReply("b", ErrorCode.INVALID_SESSION_TIMEOUT)


def test_the_last_fetched_assignment_stops_the_sync_timer_g1() -> None:
    group = stable()
    for member_id in ("b", "c", "d"):
        turn = sync(group, kit.sync(member_id, 3), NOW)
        assert isinstance(turn.then[0].group, Stable)
        assert group.unsynced - turn.then[0].group.unsynced == {member_id}
        group = turn.then[0].group
        reply = SyncReply(ErrorCode.NONE, "consumer", "range", member_id.encode())
        assert turn.reply == assignment(group, member_id) == reply
        assert (SetTimer(TimerKind.SYNC, None) in turn.then[0].timers) is (member_id == "d")
        assert SetTimer(TimerKind.SESSION, 10_000, member_id) in turn.then[0].timers
        assert (turn.log, turn.then[0].answers) == ((), ())
    again = sync(group, kit.sync("b", 3), NOW)
    assert again.then[0].group == group
    assert SetTimer(TimerKind.SYNC, None) not in again.then[0].timers
