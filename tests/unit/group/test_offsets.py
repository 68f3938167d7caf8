"""Committed positions and who may commit them (rows G6, G7, T5, T6; KIP-447), through the service over memory."""

import trio
from trio.testing import MockClock

from fencepost.coordinator.group.commands import JoinReply
from fencepost.coordinator.group.commit import Commit
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.offsets import FetchedOffset, OffsetCommitItem
from fencepost.coordinator.ports import ProducerTag
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.unit.group.kit import T0, T1, World, commit

TAG = ProducerTag(7, 0)
OTHER = ProducerTag(8, 0)
DAY_S = 86_400.0


def as_member(reply: JoinReply) -> dict[str, object]:
    return {"member_id": reply.member_id, "generation": reply.generation}


async def test_a_consumer_without_membership_commits_and_reads_back(world: World) -> None:
    assert await world.commit(5) is ErrorCode.NONE
    assert await world.service.positions.fetch("g", [T0, T1], False) == [
        FetchedOffset(T0, 5, -1, "note"),
        FetchedOffset(T1),
    ]
    assert await world.service.positions.fetch("g", None, False) == [FetchedOffset(T0, 5, -1, "note")]
    assert await world.service.positions.fetch("nobody", [T0], False) == [FetchedOffset(T0)]
    assert world.state() == "Empty"
    later = await world.restart()
    assert await later.service.positions.fetch("g", None, False) == [FetchedOffset(T0, 5, -1, "note")]


async def test_only_the_present_generation_may_commit(autojump_clock: MockClock, world: World) -> None:
    [member] = await world.settle(None)
    assert await world.commit(1, **as_member(member)) is ErrorCode.NONE
    assert await world.commit(2, member_id=member.member_id, generation=2) is ErrorCode.ILLEGAL_GENERATION
    assert await world.commit(2, member_id="x", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await world.commit(2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await world.commit(2, **as_member(member), group_instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert await world.offset() == 1


async def test_a_group_that_is_not_there_has_no_generation(world: World) -> None:
    assert await world.commit(1, generation=3, member_id="m") is ErrorCode.ILLEGAL_GENERATION
    v9 = {"generation": 3, "member_id": "m", "unknown_group": ErrorCode.GROUP_ID_NOT_FOUND}
    assert await world.commit(1, **v9) is ErrorCode.GROUP_ID_NOT_FOUND
    assert await world.commit(1, generation=3, producer=TAG) is ErrorCode.ILLEGAL_GENERATION
    assert world.state() == "Dead"


async def test_a_commit_between_join_and_sync_is_sent_back(autojump_clock: MockClock, world: World) -> None:
    promised = await world.join()
    joined = await world.join(promised.member_id)
    assert await world.commit(1, **as_member(joined)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert await world.commit(1, **as_member(joined), producer=TAG) is ErrorCode.NONE


async def test_each_partition_of_a_commit_has_its_own_error(world: World) -> None:
    items = (
        OffsetCommitItem(T0, 1),
        OffsetCommitItem(TopicPartition("t", 3), 1),
        OffsetCommitItem(TopicPartition("unknown", 0), 1),
        OffsetCommitItem(T1, 1, metadata="x" * 4097),
        OffsetCommitItem(TopicPartition("u", 2), 9, metadata="x" * 4096),
    )
    assert await world.service.positions.commit(Commit("g", items)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.NONE,
    ]
    assert {found.partition for found in await world.service.positions.fetch("g", None, False)} == {T0, ("u", 2)}


async def test_a_transactional_commit_shows_only_once_it_is_committed_t5(world: World) -> None:
    await world.commit(1)
    assert await world.commit(5, producer=TAG) is ErrorCode.NONE
    assert await world.offset() == 1
    assert await world.offset(require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await world.offset(T1, require_stable=True) == -1
    world.end_transaction(8, commit=True)
    assert await world.offset() == 1
    world.end_transaction(7, commit=True)
    assert await world.offset(require_stable=True) == 5


async def test_an_aborted_transactional_commit_is_dropped_t5(world: World) -> None:
    await world.commit(1)
    await world.commit(5, producer=TAG)
    world.end_transaction(7, commit=False)
    assert await world.offset(require_stable=True) == 1


async def test_a_plain_commit_after_a_transactional_one_outlives_its_marker(world: World) -> None:
    await world.commit(5, producer=TAG)
    await world.commit(9)
    world.end_transaction(7, commit=True)
    assert await world.offset() == 9
    assert await (await world.restart()).offset() == 9


async def test_of_two_transactions_the_later_written_position_stays(world: World) -> None:
    await world.commit(5, producer=TAG)
    await world.commit(6, producer=OTHER)
    world.end_transaction(8, commit=True)
    world.end_transaction(7, commit=True)
    assert await world.offset() == 6
    assert await (await world.restart()).offset() == 6


async def test_a_marker_that_is_heard_of_late_changes_nothing_in_between(world: World) -> None:
    await world.commit(5, producer=TAG)
    world.log_of().append_marker(7, True)
    await world.commit(9)
    world.service.complete_transaction(world.service.group_partition("g"), 7, True)
    assert await world.offset() == 9
    assert await (await world.restart()).offset() == 9


async def test_pending_positions_survive_a_restart_and_then_end_t5(world: World) -> None:
    await world.commit(1)
    await world.commit(5, producer=TAG)
    await world.commit(6, partition=T1, producer=OTHER)
    later = await world.restart()
    assert await later.offset(require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    later.end_transaction(7, commit=True)
    later.end_transaction(8, commit=False)
    assert [await later.offset(T0, True), await later.offset(T1, True)] == [5, -1]
    last = await later.restart()
    assert [await last.offset(T0, True), await last.offset(T1, True)] == [5, -1]


async def test_kip_447_fences_transactional_commits_by_generation_member_and_instance(
    autojump_clock: MockClock, world: World
) -> None:
    first, second = await world.settle(None, "i")
    stale = {"member_id": first.member_id, "generation": 0}
    assert await world.commit(5, **stale, producer=TAG) is ErrorCode.ILLEGAL_GENERATION
    assert await world.commit(5, member_id="x", generation=1, producer=TAG) is ErrorCode.UNKNOWN_MEMBER_ID
    zombie = {"member_id": "x", "generation": 1, "group_instance_id": "i"}
    assert await world.commit(5, **zombie, producer=TAG) is ErrorCode.FENCED_INSTANCE_ID
    assert await world.offset(require_stable=True) == -1
    good = {**as_member(second), "group_instance_id": "i"}
    assert await world.commit(5, **good, producer=TAG) is ErrorCode.NONE
    assert await world.offset(require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT


async def test_transactions_from_before_kip_447_name_no_member_and_are_let_through(
    autojump_clock: MockClock, world: World
) -> None:
    await world.settle(None)
    assert await world.commit(5, producer=TAG) is ErrorCode.NONE


async def test_positions_expire_a_week_after_the_group_became_empty_g7(autojump_clock: MockClock, world: World) -> None:
    [member] = await world.settle(None)
    await world.commit(1, **as_member(member))
    await trio.sleep(6.9 * DAY_S)
    assert world.state() == "Empty"
    assert await world.offset() == 1
    await trio.sleep(0.2 * DAY_S)
    assert await world.offset() == -1
    assert world.state() == "Dead"
    later = await world.restart()
    assert (later.state(), later.service.admin.offset_count) == ("Dead", 0)


async def test_a_pending_position_keeps_group_and_positions_from_expiring_g7(
    autojump_clock: MockClock, world: World
) -> None:
    await world.commit(1)
    await world.commit(2, partition=T1)
    await world.commit(5, producer=TAG)
    await trio.sleep(8 * DAY_S)
    assert [await world.offset(T0), await world.offset(T1)] == [1, -1]
    assert world.state() == "Empty"
    world.end_transaction(7, commit=False)
    await trio.sleep(DAY_S)
    assert world.state() == "Dead"


async def test_a_retention_of_the_clients_own_is_kept_to_g7(autojump_clock: MockClock, world: World) -> None:
    await world.commit(1, retention_ms=3_600_000)
    await trio.sleep(3_000)
    assert await world.offset() == 1
    await trio.sleep(1_300)
    assert await world.offset() == -1


async def test_a_live_group_loses_only_what_it_no_longer_subscribes_to_g7(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    world = World(GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000))
    await nursery.start(world.service.run)
    subscription = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
    [member] = await world.settle(None, protocols=(("range", subscription),), session_timeout_ms=1_800_000)
    await world.commit(1, **as_member(member))
    await world.service.positions.commit(commit(2, TopicPartition("u", 0), **as_member(member)))
    await trio.sleep(62)
    assert await world.service.positions.fetch("g", None, False) == [FetchedOffset(T0, 1, -1, "note")]
    assert world.state() == "Stable"


async def test_positions_in_a_deleted_topic_are_forgotten_pending_ones_too(world: World) -> None:
    await world.commit(1)
    await world.commit(2, partition=TopicPartition("u", 0))
    await world.commit(5, partition=T1, producer=TAG)
    world.service.topics_deleted(["t"])
    world.end_transaction(7, commit=True)
    assert await world.service.positions.fetch("g", None, False) == [
        FetchedOffset(TopicPartition("u", 0), 2, -1, "note")
    ]
    assert (await world.restart()).service.admin.offset_count == 1


async def test_positions_in_a_topic_that_went_in_a_crash_are_forgotten_at_start(world: World) -> None:
    await world.commit(1)
    world.topics.names.discard("t")
    later = await world.restart()
    later.service.forget_deleted_topics()
    assert later.service.admin.offset_count == 0
    assert await (await later.restart()).offset() == -1


async def test_positions_of_a_former_topic_of_the_same_name_are_forgotten_at_start(world: World) -> None:
    items = (OffsetCommitItem(T0, 1, topic_id=b"t" * 16), OffsetCommitItem(T1, 2, topic_id=world.topics.topic_id("t")))
    assert await world.service.positions.commit(Commit("g", items)) == [ErrorCode.NONE] * 2
    later = await world.restart()
    later.service.forget_deleted_topics()
    assert (await later.offset(), await later.offset(T1)) == (-1, 2)


async def test_a_deleted_group_takes_its_positions_along(world: World) -> None:
    await world.commit(1)
    await world.commit(5, partition=T1, producer=TAG)
    assert await world.service.admin.delete_groups(["g"]) == [ErrorCode.NONE]
    world.end_transaction(7, commit=True)
    assert await world.service.positions.fetch("g", None, False) == []
    assert (await world.restart()).state() == "Dead"


async def test_a_refused_commit_says_so_for_every_partition(world: World) -> None:
    world.log_of().refuses = ErrorCode.INVALID_PRODUCER_EPOCH
    assert await world.commit(5, producer=TAG) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await world.offset(require_stable=True) == -1


async def test_a_read_waits_until_what_it_saw_is_durable(world: World, nursery: trio.Nursery) -> None:
    world.log_of().hold()
    nursery.start_soon(world.commit, 5)
    await trio.testing.wait_all_tasks_blocked()
    with trio.move_on_after(0.01) as scope:
        await world.offset()
    assert scope.cancelled_caught
    world.log_of().release()
    assert await world.offset() == 5
