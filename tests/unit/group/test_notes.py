"""What the log says of a group: why it rebalances, with the clients' own words (KIP-800), and what came of it (G1)."""

import logging

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from fencepost.coordinator.group.commands import MemberName
from fencepost.coordinator.group.notes import named
from tests.unit.group.kit import World


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "fencepost.coordinator.group.classic_service")
    return caplog


async def test_a_whole_life_is_told_kip_800(
    autojump_clock: MockClock, world: World, told: pytest.LogCaptureFixture
) -> None:
    """The reasons of JoinGroup v8 and LeaveGroup v5 stand where the rebalance begins."""
    one, two = await world.settle(None, None, reason="made in test")
    names = [MemberName(two.member_id, reason="the consumer is being closed")]
    await world.service.classic.leave("g", names)
    await trio.testing.wait_all_tasks_blocked()
    await world.service.classic.leave("g", [MemberName(one.member_id)])
    assert [record.getMessage() for record in told.records] == [
        f"group g: a new group prepares a rebalance of 1 member: member {one.member_id} joins,"
        " its reason: made in test",
        "group g: generation 1 with 2 members waits for its leader",
        "group g: generation 1 is stable: 2 members, range",
        f"group g: generation 1 prepares a rebalance of 1 member: left: {two.member_id},"
        " its reason: the consumer is being closed",
        f"group g: generation 2 is empty: left: {one.member_id}",
    ]
    assert world.service.tallies.completed_rebalances == 1


async def test_who_is_silent_is_named(world: World, told: pytest.LogCaptureFixture, autojump_clock: MockClock) -> None:
    one, two = await world.settle(None, None)
    for _ in range(3):
        await trio.sleep(4)
        world.beat(one)
    assert told.records[-1].getMessage() == (
        f"group g: generation 1 prepares a rebalance of 1 member: member {two.member_id} sent no heartbeat for 10000 ms"
    )
    await trio.sleep(11)
    assert told.records[-1].getMessage() == (
        f"group g: generation 2 is empty: member {one.member_id} sent no heartbeat for 10000 ms"
    )


async def test_who_is_silent_while_others_rejoin_is_named_too(
    autojump_clock: MockClock, world: World, told: pytest.LogCaptureFixture, nursery: trio.Nursery
) -> None:
    """Whether the rebalance waits for others still, or ends by that."""
    one, two, three = await world.settle(None, None, None)
    await trio.sleep(6)
    world.beat(one)
    nursery.start_soon(lambda: world.join(one.member_id))
    await trio.sleep(1)
    world.beat(three)
    await trio.sleep(4)
    continues = "group g: generation 1 continues its rebalance with 2 members"
    assert told.records[-1].getMessage() == f"{continues}: member {two.member_id} sent no heartbeat for 10000 ms"
    await trio.sleep(10)
    ends = f"group g: generation 2 with 1 member waits for its leader, dropped: {three.member_id}"
    assert told.records[-1].getMessage() == f"{ends} (member {three.member_id} sent no heartbeat for 10000 ms)"
    nursery.cancel_scope.cancel()


async def test_who_never_syncs_is_named(
    autojump_clock: MockClock, world: World, told: pytest.LogCaptureFixture
) -> None:
    await world.join("", member_id_required=False, session_timeout_ms=600_000)
    await trio.sleep(61)
    texts = [record.getMessage() for record in told.records]
    assert "group g: generation 2 is empty: these members sent no SyncGroup: c-1" in texts


def test_of_many_members_some_are_named() -> None:
    assert named("abcdefg") == "a, b, c, d, e and 2 more"
    assert named("ab") == "a, b"
