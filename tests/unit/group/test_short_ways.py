"""Most Joins and Syncs of a rebalance take a short way, which must come to what the long one does (rows G1, G2)."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.coordinator.group.classic import assignment, fetched, sync
from fencepost.coordinator.group.growing import Grown
from fencepost.coordinator.group.join import join, one_more
from fencepost.coordinator.group.rebalance import rebalance_or_complete
from fencepost.coordinator.group.state import PreparingRebalance, Stable, with_member
from fencepost.coordinator.group.turn import Join, JoinReply, Out, SetTimer, Sync, SyncReply, TimerKind
from fencepost.protocol.errors import ErrorCode
from tests.unit.group import kit
from tests.unit.group.machine import CONFIG, NOW, pair

MEMBERS = ("a", "b", "c", "d")
INSTANCES = {"d": "i"}
"""Only one is a static member."""


def stable(*synced: str) -> Stable:
    """A stable group of which these, and the leader, have fetched what they were given."""
    group = rebalancing("b", "c", "d")
    after = join(group, kit.join("a"), "", CONFIG, NOW).group
    for member_id in ("a", *synced):
        given_out = tuple((one, one.encode()) for one in MEMBERS) if member_id == "a" else ()
        after = sync(after, said(member_id, 3, assignments=given_out), NOW).group
    assert isinstance(after, Stable)
    return after


def rebalancing(*joined: str) -> PreparingRebalance:
    """A group of four that goes from its second generation to its third; these have joined again."""
    group = pair()
    members = group.members
    for member_id in ("c", "d"):
        newcomer = replace(members["b"], member_id=member_id, group_instance_id=INSTANCES.get(member_id))
        members = with_member(members, newcomer)
    after = rebalance_or_complete(replace(group, members=members), Grown(joined), NOW, Out("g"))
    assert isinstance(after, PreparingRebalance)
    return after


def said(member_id: str, generation: int, **changes: object) -> Sync:
    return replace(kit.sync(member_id, generation), **changes)  # type: ignore[arg-type]


SYNCS = st.builds(
    Sync,
    st.just("g"),
    st.sampled_from([*MEMBERS, "x"]),
    st.sampled_from([None, "i", "j"]),
    st.sampled_from([2, 3, 4]),
    st.sampled_from([None, "consumer", "connect"]),
    st.sampled_from([None, "range", "sticky"]),
)


@given(SYNCS, st.lists(st.sampled_from(MEMBERS[1:]), max_size=3, unique=True))
@example(Sync("g", "b", None, 3, "consumer", "range"), [])
def test_who_fetches_an_assignment_by_the_short_way_g1(command: Sync, before: list[str]) -> None:
    group = stable(*before)
    after, turn = fetched(group, command), sync(group, command, NOW)
    if after is None:
        return
    assert turn.group == after
    assert (
        turn.reply
        == assignment(after, command.member_id)
        == SyncReply(ErrorCode.NONE, "consumer", "range", command.member_id.encode())
    )
    assert turn.timers == (SetTimer(TimerKind.SESSION, 10_000, command.member_id),)
    assert (turn.log, turn.answers) == ((), ())


def test_most_members_fetch_by_the_short_way_and_the_last_does_not_g1() -> None:
    """The last one stops the timer that watches over the fetching."""
    group = stable()
    for member_id in ("b", "c"):
        after = fetched(group, said(member_id, 3))
        assert after is not None
        assert group.unsynced - after.unsynced == {member_id}
        group = after
    assert fetched(group, said("d", 3)) is None
    assert SetTimer(TimerKind.SYNC, None) in sync(group, said("d", 3), NOW).timers


JOINS = st.builds(
    Join,
    st.just("g"),
    st.sampled_from([*MEMBERS, "x"]),
    st.sampled_from([None, "i", "j"]),
    st.just("c"),
    st.just("/127.0.0.1"),
    st.sampled_from([1, 10_000, 20_000, 10**9]),
    st.sampled_from([60_000, 70_000]),
    st.sampled_from(["consumer", "connect"]),
    st.sampled_from([(("range", b"m"),), (("range", b"new"),), (("sticky", b""), ("range", b"m")), ()]),
    st.just(True),
    st.just(True),
)


@given(JOINS, st.lists(st.sampled_from(MEMBERS), max_size=3, unique=True))
@example(kit.join("b", protocols=(("range", b"new"),)), ["a"])
def test_who_joins_again_by_the_short_way_g2(command: Join, before: list[str]) -> None:
    group = rebalancing(*before)
    after = one_more(group, command, CONFIG)
    if after is None:
        return
    now = after.members[command.member_id]
    assert now.protocols == command.protocols
    assert (now.session_timeout_ms, now.rebalance_timeout_ms) == (
        command.session_timeout_ms,
        command.rebalance_timeout_ms,
    )
    members = with_member(group.members, now)
    out = Out("g")
    assert rebalance_or_complete(group, Grown((command.member_id,)), NOW, out, members) == after
    assert (out.log, out.timers, out.answers) == ([], [], [])


def test_most_members_join_by_the_short_way_and_the_last_does_not_g2() -> None:
    """The last one completes the join phase. Who does not live within the bounds of sessions is refused."""
    group = rebalancing("a")
    for member_id in ("b", "c"):
        after = one_more(group, kit.join(member_id), CONFIG)
        assert after is not None
        group = after
    assert one_more(group, kit.join("d"), CONFIG) is None
    brief = kit.join("b", session_timeout_ms=1)
    assert one_more(rebalancing(), brief, CONFIG) is None
    assert join(rebalancing(), brief, "", CONFIG, NOW).reply == JoinReply("b", ErrorCode.INVALID_SESSION_TIMEOUT)
