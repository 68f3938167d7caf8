"""The partitions of a share group: begun through the share coordinator, deleted with topic or group (KIP-932)."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fencepost.coordinator.group.share.partitions import Begun, GroupPartitions, new_state_epoch
from fencepost.coordinator.share.values import UNINITIALIZED, InitialState
from fencepost.protocol.errors import ErrorCode
from tests.kit.clocks import VirtualClock
from tests.unit.group.share.kit import NONE, Topics, World, key, topic_id


def epoch() -> int:
    return new_state_epoch(0, VirtualClock().now_ms())


def test_a_state_epoch_is_above_those_of_the_group_before_it_was_deleted_g4() -> None:
    """Kafka takes the group's epoch, which begins anew with it (buildInitializeShareGroupStateRequest)."""
    assert new_state_epoch(7, 1_577_836_800_000 + 9_500) == 9
    assert new_state_epoch(10, 1_577_836_800_000 + 9_500) == 10
    assert new_state_epoch(0, 3_725_000_000_000) < 1 << 31, "the year 2088"


class TestBeginning:
    async def test_new_partitions_begin_by_the_groups_reset_policy_g4(self, world: World) -> None:
        """GroupMetadataManager.buildInitializeShareGroupStateRequest: without an offset."""
        await world.beat("a", 0)
        assert world.states.asked == [{key(one): InitialState(epoch(), UNINITIALIZED) for one in range(3)}]
        assert world.share.partitions == GroupPartitions({}, {topic_id("t"): Begun("t", frozenset({0, 1, 2}))})
        await world.beat("a", 2)
        assert len(world.states.asked) == 1

    async def test_a_partition_that_was_added_begins_at_its_first_record_g4(self, world: World) -> None:
        """No record is lost that was written before the group noticed the partition."""
        await world.beat("a", 0)
        world.topics.sizes["t"] = 4
        world.service.topics_changed(["t"])
        assert await world.has("a") == [0, 1, 2, 3]
        assert world.states.asked[1:] == [{key(3): InitialState(epoch(), 0)}]

    async def test_only_what_is_initialised_is_assigned_and_the_rest_is_asked_for_again_g4(self, world: World) -> None:
        """GroupCoordinatorService.uninitializeShareGroupState, GroupMetadataManager.initializedAssignmentPending."""
        world.states.refuses[key(1)] = ErrorCode.NOT_COORDINATOR
        assert (await world.beat("a", 0)).assignment == {topic_id("t"): frozenset({0, 2})}
        assert world.share.partitions.initializing == {}
        world.states.refuses.clear()
        reply = await world.beat("a", 2)
        assert (reply.member_epoch, reply.assignment) == (3, {topic_id("t"): frozenset({0, 1, 2})})

    async def test_a_heartbeat_looks_at_all_topics_only_if_they_or_the_group_changed_g4(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Kafka looks at all for each (subscribedTopicsChangeMap): 10,000 topics and 200 members would fill a core."""
        await world.beat("a", 0)
        await world.beat("a", 2)
        looks: list[object] = []
        missing = GroupPartitions.missing

        def counted(*arguments: Any) -> Any:
            looks.append(arguments)
            return missing(*arguments)

        monkeypatch.setattr(GroupPartitions, "missing", counted)
        await world.beat("a", 2)
        await world.beat("a", 2)
        assert not looks
        world.topics.sizes["t"] = 4
        world.service.topics_changed(["t"])
        assert await world.has("a") == [0, 1, 2, 3]
        assert looks

    async def test_what_is_asked_for_is_not_asked_for_twice_g4(
        self, autojump_clock: MockClock, world: World, nursery: trio.Nursery
    ) -> None:
        """Another member joins meanwhile without partitions; 30 s later it asks again (subscribedTopicsChangeMap)."""
        world.states.gate = trio.Event()
        nursery.start_soon(world.beat, "a", 0)
        await trio.testing.wait_all_tasks_blocked()
        assert list(world.share.partitions.initializing) == [topic_id("t")]
        assert (await world.beat("b", 0)).assignment == {}
        assert len(world.states.asked) == 1
        await trio.sleep(5)
        world.states.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len(await world.has("a")) + len(await world.has("b")) == 3

    async def test_after_a_restart_it_is_asked_for_again_at_once_g8(self, world: World, nursery: trio.Nursery) -> None:
        world.states.gate = trio.Event()
        nursery.start_soon(world.beat, "a", 0)
        await trio.testing.wait_all_tasks_blocked()
        again = await world.again()
        assert list(again.share.partitions.initializing) == [topic_id("t")]
        world.states.gate.set()
        assert (await again.beat("b", 0)).assignment == {topic_id("t"): frozenset({0, 1, 2})}
        assert again.states.asked[1] == {key(one): InitialState(epoch(), UNINITIALIZED) for one in range(3)}

    async def test_who_is_refused_begins_nothing_g4(self, world: World) -> None:
        await world.beat("a", 0)
        assert await world.refused("b", 7, "u") is ErrorCode.UNKNOWN_MEMBER_ID
        assert len(world.states.asked) == 1


def test_an_initialization_is_tried_again_when_the_clock_has_gone_back_g4() -> None:
    """Ours: Kafka's GroupMetadataManager.subscribedTopicsChangeMap waits for as long as the clock went back."""
    topics = Topics(t=3)
    begun = Begun("t", frozenset({0, 1, 2}), 3_600_000)
    partitions = GroupPartitions(initializing={topic_id("t"): begun})
    assert partitions.missing(["t"], topics.image, 3_600_000, 30_000) == {}
    assert partitions.missing(["t"], topics.image, 0, 30_000) == {topic_id("t"): begun._replace(since_ms=0)}


class TestDeletedTopics:
    async def test_a_deleted_topic_is_no_partition_of_the_group_any_more_g4(self, world: World) -> None:
        """GroupMetadataManager.maybeCleanupShareGroupState."""
        await world.beat("a", 0, "t", "u")
        del world.topics.sizes["t"]
        world.service.topics_deleted(["t"])
        assert list(world.share.partitions.initialized) == [topic_id("u")]
        reply = await world.beat("a", 2)
        assert (reply.member_epoch, reply.assignment) == (3, {topic_id("u"): frozenset({0, 1})})

    async def test_a_topic_deleted_before_a_crash_is_forgotten_at_the_start_g8(self, world: World) -> None:
        await world.beat("a", 0)
        del world.topics.sizes["t"]
        again = await world.again()
        again.service.forget_deleted_topics()
        assert again.share.partitions == GroupPartitions()

    async def test_a_topic_that_is_created_again_begins_anew_g4(self, world: World) -> None:
        await world.beat("a", 0)
        world.topics.ids["t"] = topic_id("t-again")
        world.service.topics_deleted(["t"])
        reply = await world.beat("a", 2)
        assert reply.assignment == {topic_id("t-again"): frozenset({0, 1, 2})}
        assert world.states.asked[1][key(0, "t-again")] == InitialState(epoch(), UNINITIALIZED)


class TestDeletedGroups:
    async def delete(self, world: World) -> ErrorCode:
        [error] = await world.service.admin.delete_groups(["g"])
        return error

    async def test_the_states_go_first_and_then_the_group_g11(self, world: World) -> None:
        """GroupCoordinatorService.deleteShareGroups; GroupMetadataManager.shareGroupBuildPartitionDeleteRequest."""
        await world.beat("a", 0)
        assert await self.delete(world) is ErrorCode.NON_EMPTY_GROUP
        await world.beat("a", -1)
        assert await self.delete(world) is NONE
        assert world.states.states == {}
        assert await self.delete(world) is ErrorCode.GROUP_ID_NOT_FOUND
        again = await world.again()
        assert await self.delete(again) is ErrorCode.GROUP_ID_NOT_FOUND

    async def test_where_a_state_stays_the_group_stays_and_can_be_deleted_later_g11(self, world: World) -> None:
        await world.beat("a", 0)
        await world.beat("a", -1)
        world.states.refuses[key(2)] = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await self.delete(world) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.share.partitions.deleting == {topic_id("t"): "t"}
        world.states.refuses.clear()
        assert await self.delete(world) is NONE
        assert world.states.states == {}

    async def test_who_joins_while_the_group_is_deleted_keeps_it_and_begins_anew_g11(
        self, world: World, nursery: trio.Nursery
    ) -> None:
        await world.beat("a", 0)
        await world.beat("a", -1)
        world.states.gate, errors = trio.Event(), []

        async def delete() -> None:
            errors.append(await self.delete(world))

        nursery.start_soon(delete)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(world.beat, "b", 0)
        await trio.testing.wait_all_tasks_blocked()
        world.states.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert errors == [NONE]
        assert set(world.states.states) == {key(one) for one in range(3)} == set(_begun(world))

    async def test_what_is_being_begun_is_deleted_after_that_g11(self, world: World, nursery: trio.Nursery) -> None:
        """A state that is left has a higher epoch than a new group, which could not begin the partition then."""
        world.states.gate, errors = trio.Event(), []

        async def delete() -> None:
            errors.append(await self.delete(world))

        nursery.start_soon(world.beat, "a", 0)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(delete)
        await trio.testing.wait_all_tasks_blocked()
        world.states.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert errors in ([NONE], [ErrorCode.NON_EMPTY_GROUP])
        assert set(world.states.states) == set(_begun(world))


def _begun(world: World) -> list[object]:
    return [key(one, topic.name) for topic in world.share.partitions.initialized.values() for one in topic.partitions]


def test_an_answer_counts_only_for_what_is_still_asked_for_g4() -> None:
    asked = GroupPartitions().asking({topic_id("t"): Begun("t", frozenset({0, 1, 2}), 5)})
    done = asked.settled({topic_id("t"): frozenset({0, 9}), topic_id("u"): frozenset({0})}, {topic_id("t"): {1}})
    assert done.initialized == {topic_id("t"): Begun("t", frozenset({0}))}
    assert done.initializing == {topic_id("t"): Begun("t", frozenset({2}), 5)}


@pytest.mark.parametrize(("waiting", "start"), [({1}, UNINITIALIZED), ({0}, 0), (set(), UNINITIALIZED)])
def test_a_second_attempt_begins_where_the_first_would_have_g4(waiting: set[int], start: int) -> None:
    """Kafka begins it at 0 if the first attempt has not been answered, whatever the group's reset policy is."""
    begun = GroupPartitions({topic_id("t"): Begun("t", frozenset(waiting))}) if waiting else GroupPartitions()
    asked = {topic_id("t"): Begun("t", frozenset({1}))}
    assert begun.first_states("g", 3, asked) == {key(1): InitialState(3, start)}
