"""The group service over memory under trio's MockClock: members that join, live, rebalance, leave and die (G1, G2)."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from fencepost.coordinator.group.commands import JoinReply, MemberName, SyncReply
from fencepost.coordinator.group.config import GroupConfig
from fencepost.protocol.errors import ErrorCode
from tests.unit.group.kit import T0, World, assignments, commit


async def test_two_members_join_one_generation_and_the_leader_assigns(autojump_clock: MockClock, world: World) -> None:
    first, second = await world.settle(None, None)
    assert first.generation == second.generation == 1
    assert {first.leader, second.leader} == {first.member_id}
    assert world.state() == "Stable"
    reply = await world.sync(second.member_id, 1)
    assert reply == SyncReply(ErrorCode.NONE, "consumer", "range", second.member_id.encode())
    assert world.beat(first) == world.beat(second) == ErrorCode.NONE


async def test_a_third_member_makes_the_two_rejoin(
    autojump_clock: MockClock, world: World, nursery: trio.Nursery
) -> None:
    first, second = await world.settle(None, None)
    replies: dict[str, JoinReply] = {}

    async def rejoin(member_id: str) -> None:
        replies[member_id] = await world.join(member_id)

    promised = await world.join()
    nursery.start_soon(rejoin, promised.member_id)
    await trio.testing.wait_all_tasks_blocked()
    assert world.beat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    nursery.start_soon(rejoin, first.member_id)
    await trio.testing.wait_all_tasks_blocked()
    assert not replies
    await rejoin(second.member_id)
    await trio.testing.wait_all_tasks_blocked()
    assert {reply.generation for reply in replies.values()} == {2}
    assert len(replies) == 3
    assert world.beat(first) is ErrorCode.ILLEGAL_GENERATION


async def test_a_member_without_heartbeats_is_dropped_and_its_place_given_to_others(
    autojump_clock: MockClock, world: World
) -> None:
    first, second = await world.settle(None, None)
    for _ in range(3):
        await trio.sleep(4)
        answer = world.beat(first)
    assert answer is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.beat(second) is ErrorCode.UNKNOWN_MEMBER_ID
    again = await world.join(first.member_id)
    assert (again.generation, len(again.members)) == (2, 1)


async def test_a_commit_is_a_sign_of_life(autojump_clock: MockClock, world: World) -> None:
    [first] = await world.settle(None)
    for offset in range(5):
        await trio.sleep(9)
        assert await world.commit(offset, member_id=first.member_id, generation=first.generation) is ErrorCode.NONE
    assert world.beat(first) is ErrorCode.NONE
    await trio.sleep(10.1)
    assert world.state() == "Empty"


async def test_a_member_that_does_not_rejoin_in_time_is_dropped(
    autojump_clock: MockClock, world: World, nursery: trio.Nursery
) -> None:
    first, second = await world.settle(None, None, session_timeout_ms=120_000)
    start = trio.current_time()
    reply = await world.join(first.member_id)
    assert trio.current_time() - start == pytest.approx(60)
    assert [member.member_id for member in reply.members] == [first.member_id]
    assert world.beat(second) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_followers_wait_for_a_leader_that_syncs_never_only_so_long(
    autojump_clock: MockClock, world: World, nursery: trio.Nursery
) -> None:
    replies: list[JoinReply] = []

    async def one() -> None:
        promised = await world.join(session_timeout_ms=120_000)
        replies.append(await world.join(promised.member_id, session_timeout_ms=120_000))

    nursery.start_soon(one)
    nursery.start_soon(one)
    await trio.sleep(7)
    follower = next(reply for reply in replies if reply.leader != reply.member_id)
    start = trio.current_time()
    assert await world.sync(follower.member_id, 1) == SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
    assert trio.current_time() - start == pytest.approx(59, abs=1.5)
    again = await world.join(follower.member_id)
    assert (again.generation, again.leader) == (2, follower.member_id)


async def test_a_static_member_comes_back_without_a_rebalance_and_its_old_self_is_fenced(
    autojump_clock: MockClock, world: World
) -> None:
    first, second = await world.settle("one", "two")
    back = await world.join(group_instance_id="two")
    assert (back.generation, back.leader) == (1, first.member_id)
    assert world.state() == "Stable"
    assert (await world.sync(back.member_id, 1)).assignment == second.member_id.encode()
    assert world.service.classic.heartbeat("g", second.member_id, "two", 1) is ErrorCode.FENCED_INSTANCE_ID
    fenced = await world.commit(1, member_id=second.member_id, generation=1, group_instance_id="two")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID


async def test_a_static_leader_that_comes_back_skips_the_assignment(autojump_clock: MockClock, world: World) -> None:
    first, _ = await world.settle("one", "two")
    back = await world.join(group_instance_id="one")
    assert back.skip_assignment
    assert len(back.members) == 2
    assert (await world.sync(back.member_id, 1)).assignment == first.member_id.encode()


async def test_a_static_member_does_not_leave_a_place_behind_for_ever(autojump_clock: MockClock, world: World) -> None:
    await world.settle("one", "two")
    await trio.sleep(10.1)
    assert world.state() == "Empty"


async def test_members_leave_and_the_group_is_empty_then(autojump_clock: MockClock, world: World) -> None:
    first, _ = await world.settle(None, "i")
    names = [MemberName(first.member_id), MemberName("", "i"), MemberName("stranger")]
    assert await world.service.classic.leave("g", names) == (
        ErrorCode.NONE,
        [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID],
    )
    assert world.state() == "Empty"
    assert (await world.restart()).state() == "Empty"


async def test_a_restart_keeps_the_group_without_a_rebalance_and_its_sessions_start_over(
    autojump_clock: MockClock, world: World, nursery: trio.Nursery
) -> None:
    first, second = await world.settle(None, "i")
    await trio.sleep(9)
    later = await world.restart()
    await nursery.start(later.service.run)
    assert later.state() == "Stable"
    await trio.sleep(9)
    assert later.beat(first) is ErrorCode.NONE
    assert (await later.sync(second.member_id, 1)).assignment == second.member_id.encode()
    assert later.service.classic.heartbeat("g", first.member_id, "i", 1) is ErrorCode.FENCED_INSTANCE_ID
    await trio.sleep(5)
    assert later.beat(first) is ErrorCode.NONE
    await trio.sleep(6)
    assert later.state() == "PreparingRebalance"
    assert later.beat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert later.beat(second) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_that_is_too_large_after_a_restart_rebalances(
    autojump_clock: MockClock, world: World, nursery: trio.Nursery
) -> None:
    first, second = await world.settle(None, None)
    later = World(GroupConfig(group_max_size=1), world.logs)
    await later.service.start()
    await nursery.start(later.service.run)
    assert later.beat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    replies: list[JoinReply] = []

    async def rejoin() -> None:
        replies.append(await later.join(second.member_id))

    nursery.start_soon(rejoin)
    await trio.testing.wait_all_tasks_blocked()
    assert (await later.join(first.member_id)).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    await trio.testing.wait_all_tasks_blocked()
    assert [reply.leader for reply in replies] == [second.member_id]


async def test_an_answer_waits_until_what_it_rests_on_is_durable(
    autojump_clock: MockClock, world: World, nursery: trio.Nursery
) -> None:
    promised = await world.join()
    joined = await world.join(promised.member_id)
    log = world.log_of()
    log.hold()
    synced: list[SyncReply] = []

    async def sync() -> None:
        synced.append(await world.sync(joined.member_id, 1, assignments=assignments(joined)))

    nursery.start_soon(sync)
    await trio.testing.wait_all_tasks_blocked()
    assert world.state() == "Stable"
    assert not synced
    committed: list[ErrorCode] = []

    async def commit_too() -> None:
        committed.append(await world.commit(5, member_id=joined.member_id, generation=1))

    nursery.start_soon(commit_too)
    await trio.testing.wait_all_tasks_blocked()
    assert not committed
    assert world.beat(joined) is ErrorCode.NONE
    log.release()
    await trio.testing.wait_all_tasks_blocked()
    assert [synced[0].error, *committed] == [ErrorCode.NONE, ErrorCode.NONE]


async def test_a_refused_write_leaves_the_group_as_it_was(autojump_clock: MockClock, world: World) -> None:
    promised = await world.join()
    joined = await world.join(promised.member_id)
    world.log_of().refuses = ErrorCode.KAFKA_STORAGE_ERROR
    before = world.group()
    assert await world.sync_as(joined) == SyncReply(ErrorCode.NOT_COORDINATOR)
    assert world.group() == before
    assert await world.commit(1, member_id=joined.member_id, generation=1) is ErrorCode.REBALANCE_IN_PROGRESS
    error, _ = await world.service.classic.leave("g", [MemberName(joined.member_id)])
    assert error is ErrorCode.NOT_COORDINATOR
    world.log_of().refuses = None
    assert (await world.sync_as(joined)).error is ErrorCode.NONE


async def test_a_session_whose_end_can_not_be_written_ends_later(autojump_clock: MockClock, world: World) -> None:
    await world.settle(None)
    world.log_of().refuses = ErrorCode.KAFKA_STORAGE_ERROR
    await trio.sleep(15)
    assert world.state() == "Stable"
    world.log_of().refuses = None
    await trio.sleep(2)
    assert world.state() == "Empty"


async def test_a_join_repeated_on_another_connection_takes_over_the_wait(
    autojump_clock: MockClock, world: World, nursery: trio.Nursery
) -> None:
    first, second = await world.settle(None, None)
    replies: list[JoinReply] = []

    async def rejoin() -> None:
        replies.append(await world.join(first.member_id))

    nursery.start_soon(rejoin)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(rejoin)
    await trio.testing.wait_all_tasks_blocked()
    assert replies == [JoinReply("", ErrorCode.REBALANCE_IN_PROGRESS)]
    await world.join(second.member_id)
    await trio.testing.wait_all_tasks_blocked()
    assert replies[1].generation == 2


async def test_a_cancelled_join_leaves_no_wait_behind(autojump_clock: MockClock, world: World) -> None:
    first, second = await world.settle(None, None)
    with trio.move_on_after(1):
        await world.join(first.member_id)
    assert not len(world.service._effects.joins)
    reply = await world.join(second.member_id)
    assert reply.generation == 2


async def test_a_broker_that_stops_sends_everybody_who_waits_away(
    autojump_clock: MockClock, world: World, nursery: trio.Nursery
) -> None:
    first, _ = await world.settle(None, None)
    replies: list[JoinReply] = []

    async def rejoin() -> None:
        replies.append(await world.join(first.member_id))

    nursery.start_soon(rejoin)
    await trio.testing.wait_all_tasks_blocked()
    world.service.close()
    await trio.testing.wait_all_tasks_blocked()
    assert replies == [JoinReply("", ErrorCode.NOT_COORDINATOR)]
    assert (await world.join("x")).error is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("group_id", [""])
async def test_a_group_without_a_name_can_not_be_joined(autojump_clock: MockClock, world: World, group_id: str) -> None:
    assert (await world.join(group_id="")).error is ErrorCode.INVALID_GROUP_ID
    assert world.service.classic.heartbeat("", "m", None, 1) is ErrorCode.INVALID_GROUP_ID
    assert await world.service.classic.leave("", [MemberName("m")]) == (ErrorCode.INVALID_GROUP_ID, [])


async def test_without_an_initial_delay_the_first_member_waits_for_nothing(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    world = World(GroupConfig())
    await nursery.start(world.service.run)
    start = trio.current_time()
    [reply] = await world.settle(None)
    assert trio.current_time() == start
    assert reply.generation == 1


async def test_groups_are_described_listed_counted_and_deleted(autojump_clock: MockClock, world: World) -> None:
    first, second = await world.settle(None, "i")
    await world.service.positions.commit(commit(7, group_id="simple"))
    described, missing = await world.service.admin.describe(["g", "nobody"])
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    assert [(one.member_id, one.group_instance_id, one.metadata, one.assignment) for one in described.members] == [
        (first.member_id, None, b"m", first.member_id.encode()),
        (second.member_id, "i", b"m", second.member_id.encode()),
    ]
    assert (missing.state, missing.error) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    listed = await world.service.admin.list_groups((), ())
    assert {(group.group_id, group.state, group.group_type) for group in listed} == {
        ("g", "Stable", "classic"),
        ("simple", "Empty", "classic"),
    }
    assert [group.group_id for group in await world.service.admin.list_groups(["EMPTY"], ["Classic"])] == ["simple"]
    assert await world.service.admin.list_groups((), ["consumer"]) == []
    assert sorted(world.service.admin.census()) == [("classic", "Empty"), ("classic", "Stable")]
    assert [tuple(offset) for offset in world.service.admin.committed_offsets()] == [("simple", T0.topic, 0, 7)]
    assert await world.service.admin.delete_groups(["g", "simple", "nobody"]) == [
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    assert world.service.admin.offset_count == 0
    later = await world.restart()
    assert list(later.service.admin.census()) == [("classic", "Stable")]
