"""ShareGroupHeartbeat: who may join and stay, epochs, sessions, assignments, restarts (KIP-932)."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from fencepost.coordinator.metadata.image import ConfigResource, MetadataImage
from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.errors import ErrorCode
from tests.unit.group.share.kit import CONFIG, NONE, Topics, World, topic_id


class TestRequests:
    """GroupCoordinatorService.throwIfShareGroupHeartbeatRequestIsInvalid and KafkaApis.isMemberIdValid."""

    @pytest.mark.parametrize(
        ("member_id", "epoch", "fields"),
        [
            ("", 0, {}),
            ("m" * 37, 0, {}),
            ("  ", 0, {}),
            ("a", 0, {"topics": ()}),
            ("a", 0, {"topics": None}),
            ("a", 0, {"rack_id": " "}),
            ("a", 0, {"group_id": ""}),
            ("a", -2, {}),
        ],
    )
    async def test_what_is_invalid_in_every_group_g4(
        self, world: World, member_id: str, epoch: int, fields: dict[str, object]
    ) -> None:
        assert await world.refused(member_id, epoch, **fields) is ErrorCode.INVALID_REQUEST

    async def test_only_a_member_that_joins_creates_a_group_g4(self, world: World) -> None:
        """GroupMetadataManager.getOrMaybeCreateShareGroup."""
        for epoch in (1, -1):
            assert await world.refused("a", epoch) is ErrorCode.GROUP_ID_NOT_FOUND


class TestFencing:
    """GroupMetadataManager.throwIfShareGroupMemberEpochIsInvalid, getOrMaybeSubscribeShareGroupMember."""

    async def test_a_stranger_must_join_first_g4(self, world: World) -> None:
        await world.beat("a", 0)
        assert await world.refused("b", 2) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await world.refused("b", -1) is ErrorCode.UNKNOWN_MEMBER_ID

    async def test_its_epoch_and_the_one_before_are_accepted_and_no_other_g4(self, world: World) -> None:
        """The answer with the new epoch may be lost."""
        assert (await world.beat("a", 0)).member_epoch == 2
        await world.beat("b", 0)
        assert (await world.beat("a", 2)).member_epoch == 3
        assert (await world.beat("a", 2)).member_epoch == 3
        for epoch in (4, 1):
            reply = await world.beat("a", epoch)
            assert reply.error is ErrorCode.FENCED_MEMBER_EPOCH
            assert reply.text is not None
            assert "must abandon all its partitions and rejoin" in reply.text

    async def test_a_member_may_join_again_under_its_id_g4(self, world: World) -> None:
        await world.beat("a", 0)
        reply = await world.beat("a", 0)
        assert (reply.error, reply.member_epoch) == (NONE, 2)
        assert reply.assignment == {topic_id("t"): frozenset({0, 1, 2})}

    async def test_a_full_group_takes_no_newcomer_and_keeps_its_own_g4(self) -> None:
        """GroupMetadataManager.throwIfShareGroupIsFull."""
        world = World(replace(CONFIG, group_share_max_size=1))
        await world.beat("a", 0)
        assert await world.refused("b", 0) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert await world.refused("a", 2) is NONE


class TestAssignment:
    async def test_who_joins_has_its_partitions_with_the_first_answer_g4(self, world: World) -> None:
        """In Kafka they come with the second heartbeat, for it initialises the partitions after the first answer."""
        reply = await world.beat("a", 0)
        assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("a", 2, 5000)
        assert reply.assignment == {topic_id("t"): frozenset({0, 1, 2})}

    async def test_an_assignment_is_shown_when_it_changed_or_when_all_is_asked_g4(self, world: World) -> None:
        await world.beat("a", 0)
        assert (await world.beat("a", 2)).assignment is None
        assert (await world.beat("a", 2, "t")).assignment is not None

    async def test_there_is_no_step_in_which_partitions_are_given_back_g4(self, world: World) -> None:
        """A newcomer has its target at once, although the other has not noticed yet."""
        await world.beat("a", 0)
        await world.beat("b", 0)
        assert len(await world.has("b")) + len(await world.has("a")) == 3

    async def test_more_members_than_partitions_share_them_g4(self, world: World) -> None:
        for member_id in "abcd":
            await world.beat(member_id, 0)
        held = [partition for member_id in "abcd" for partition in await world.has(member_id)]
        assert sorted(held) == [0, 0, 1, 1, 2, 2]

    async def test_another_subscription_changes_the_epoch_and_takes_away_what_is_not_in_it_g4(
        self, world: World
    ) -> None:
        await world.beat("a", 0, "t", "u")
        assert await world.has("a", "u") == [0, 1]
        reply = await world.beat("a", 2, "u")
        assert (reply.member_epoch, reply.assignment) == (3, {topic_id("u"): frozenset({0, 1})})

    async def test_a_topic_that_is_not_there_yet_comes_when_it_is_made_g4(self, world: World) -> None:
        reply = await world.beat("a", 0, "new")
        assert (reply.member_epoch, reply.assignment) == (2, {})
        world.topics.sizes["new"], world.topics.ids["new"] = 2, topic_id("new")
        world.service.topics_changed(["new"], created=True)
        assert await world.has("a", "new") == [0, 1]
        assert world.share.members["a"].epoch == 3

    async def test_a_heartbeat_with_nothing_new_writes_nothing_g4(self, world: World) -> None:
        await world.beat("a", 0)
        end = world.log_of().newest.end_offset
        await world.beat("a", 2)
        assert world.log_of().newest.end_offset == end

    async def test_two_assignments_have_the_interval_between_them_g4(self, autojump_clock: MockClock) -> None:
        """KIP-1263, `group.share.assignment.interval.ms`; not after the last member left (shareGroupFenceMember)."""
        world = World(replace(CONFIG, group_share_assignment_interval_ms=1000))
        await world.beat("a", 0)
        reply = await world.beat("b", 0)
        assert (reply.member_epoch, reply.assignment) == (2, {})
        await trio.sleep(1.1)
        assert await world.has("b") != []
        await world.beat("a", -1)
        await world.beat("b", -1)
        assert (await world.beat("c", 0)).assignment == {topic_id("t"): frozenset({0, 1, 2})}

    async def test_a_groups_own_settings_stand_over_the_brokers_g4(self) -> None:
        """A resource of type GROUP; within the broker's bounds."""

        class Set(Topics):
            @property
            def image(self) -> MetadataImage:
                texts = {"share.heartbeat.interval.ms": "50000", "share.record.lock.duration.ms": "1"}
                return replace(super().image, configs={ConfigResource(ConfigResourceType.GROUP, "g"): texts})

        bounds = {"share.heartbeat.interval.ms": (5000, 15_000)}
        world = World(replace(CONFIG, group_share_bounds=bounds), Set(t=3))
        assert (await world.beat("a", 0)).heartbeat_interval_ms == 15_000


class TestLeaving:
    async def test_who_leaves_is_gone_and_the_others_get_its_partitions_g4(self, world: World) -> None:
        """GroupMetadataManager.shareGroupLeave and shareGroupFenceMember."""
        await world.beat("a", 0)
        await world.beat("b", 0)
        reply = await world.beat("a", -1)
        assert (reply.error, reply.member_id, reply.member_epoch) == (NONE, "a", -1)
        assert list(world.share.members) == ["b"]
        assert await world.has("b") == [0, 1, 2]

    async def test_a_silent_member_is_removed_with_its_session_g4(
        self, autojump_clock: MockClock, world: World
    ) -> None:
        await world.beat("a", 0)
        await world.beat("b", 0)
        await trio.sleep(9)
        await world.beat("a", 2)
        await trio.sleep(2)
        assert list(world.share.members) == ["a"]
        assert await world.refused("b", 3) is ErrorCode.UNKNOWN_MEMBER_ID

    async def test_a_write_that_is_refused_is_tried_again_g4(self, autojump_clock: MockClock, world: World) -> None:
        await world.beat("a", 0)
        world.log_of().refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        await trio.sleep(11)
        assert list(world.share.members) == ["a"]
        world.log_of().refuses = None
        await trio.sleep(2)
        assert world.share.state == "Empty"


class TestRestarts:
    async def test_members_come_back_as_they_were_g8(self, world: World) -> None:
        await world.beat("a", 0, "t", "u")
        await world.beat("b", 0)
        await world.beat("a", 2)
        again = await world.again()
        for field in ("members", "target", "epoch", "assignment_epoch", "topics", "partitions", "metadata_hash"):
            assert getattr(again.share, field) == getattr(world.share, field), field
        reply = await again.beat("a", 3)
        assert (reply.error, reply.member_epoch, reply.assignment) == (NONE, 3, None)

    async def test_sessions_start_over_g8(self, autojump_clock: MockClock, world: World, nursery: trio.Nursery) -> None:
        await world.beat("a", 0)
        await trio.sleep(9)
        again = await world.again()
        await nursery.start(again.service.run)
        await trio.sleep(9)
        assert list(again.share.members) == ["a"]
        await trio.sleep(2)
        assert again.share.members == {}

    async def test_a_refused_write_changes_nothing_g8(self, world: World) -> None:
        await world.beat("a", 0)
        world.log_of().refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert await world.refused("b", 0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert list(world.share.members) == ["a"]

    async def test_an_answer_waits_for_the_disk_g8(self, world: World, nursery: trio.Nursery) -> None:
        await world.beat("a", 0)
        world.log_of().hold()
        answers: list[int] = []

        async def join() -> None:
            answers.append((await world.beat("b", 0)).member_epoch)

        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == []
        world.log_of().release()
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [3]
