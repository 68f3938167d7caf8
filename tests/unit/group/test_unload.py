"""A partition of `__consumer_offsets` that goes to another broker and comes back while the process lives."""

import trio
import trio.testing

from fencepost.coordinator.group.state import Stable
from fencepost.protocol.errors import ErrorCode
from tests.unit.group.kit import World

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


def unload(world: World) -> int:
    partition = world.service.group_partition("g")
    world.service.runtime.unload(partition)
    return partition


async def test_a_group_comes_back_in_its_generation(world: World, autojump_clock: trio.testing.MockClock) -> None:
    """Row G1, as over a restart: the same generation, members go on."""
    [member] = await world.settle(None)
    assert await world.commit(7, member_id=member.member_id, generation=member.generation) is ErrorCode.NONE
    partition = unload(world)
    assert world.beat(member) is NOT_COORDINATOR
    assert await world.commit(8, member_id=member.member_id, generation=member.generation) is NOT_COORDINATOR
    assert await world.offset() is NOT_COORDINATOR
    assert (await world.join()).error is NOT_COORDINATOR
    assert (await world.sync(member.member_id, member.generation)).error is NOT_COORDINATOR
    assert await world.service.admin.delete_groups(["g"]) == [NOT_COORDINATOR]
    assert world.service.admin.offset_count == 0, "its memory is freed"
    await world.service.runtime.load(partition)
    assert isinstance(world.group(), Stable)
    assert world.beat(member) is ErrorCode.NONE
    assert await world.offset() == 7


async def test_joins_and_syncs_that_wait_are_answered_at_the_unload(
    world: World, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Row G1: their members look for the new coordinator."""
    first, second = await world.settle("a", "b")
    found: dict[str, ErrorCode] = {}

    async def join_again() -> None:
        found["join"] = (await world.join(first.member_id, group_instance_id="a", protocols=(("range", b"n"),))).error

    nursery.start_soon(join_again)
    await trio.testing.wait_all_tasks_blocked()
    assert world.state() == "PreparingRebalance"
    unload(world)
    await trio.testing.wait_all_tasks_blocked()
    assert found == {"join": NOT_COORDINATOR}
    assert second.error is ErrorCode.NONE


async def test_no_session_ends_where_the_shard_is_not_owned(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    """Row G1: sessions stop with the shard and start over when it is loaded again."""
    [member] = await world.settle(None)
    partition = unload(world)
    await trio.sleep(30)
    await world.service.runtime.load(partition)
    assert isinstance(world.group(), Stable)
    await trio.sleep(9)
    assert world.beat(member) is ErrorCode.NONE
    await trio.sleep(11)
    assert world.state() == "Empty", "the session of 10 s is watched again"


async def test_a_reply_that_waits_for_the_disk_when_the_shard_goes_is_not_lost(
    world: World, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """What is in the log stands: its answer leaves once it is durable."""
    [member] = await world.settle(None)
    found: list[ErrorCode] = []
    world.log_of().hold()

    async def commit() -> None:
        found.append(await world.commit(9, member_id=member.member_id, generation=member.generation))

    nursery.start_soon(commit)
    await trio.testing.wait_all_tasks_blocked()
    partition = unload(world)
    world.log_of().release()
    await trio.testing.wait_all_tasks_blocked()
    assert found == [ErrorCode.NONE]
    await world.service.runtime.load(partition)
    assert await world.offset() == 9


async def test_positions_in_topics_deleted_meanwhile_are_forgotten_at_the_load(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.service.forget_deleted_topics()
    assert await world.commit(5) is ErrorCode.NONE
    partition = unload(world)
    world.topics.names.discard("t")
    world.service.topics_deleted(["t"])
    await world.service.runtime.load(partition)
    assert await world.offset() == -1
