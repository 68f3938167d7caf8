"""Consumer groups over time: sessions, rebalances and restarts (G4, G5, G8, G11)."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer.requests import Heartbeat, HeartbeatReply
from fencepost.coordinator.group.state import Empty
from fencepost.coordinator.metadata.image import ConfigResource, MetadataImage
from fencepost.coordinator.ports import LogWriteFailed
from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.errors import ErrorCode
from tests.kit.patterns import NEEDS_RE2
from tests.unit.group import kit
from tests.unit.group.consumer.kit import assignment, reported
from tests.unit.group.consumer.service_kit import CONFIG, NONE, WANTS_T, World


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    made = World()
    await nursery.start(made.service.run)
    return made


class TestTimers:
    async def test_a_silent_member_is_put_out_g4(self, autojump_clock: MockClock, world: World) -> None:
        await world.beat("a", 0)
        await trio.sleep(9)
        assert (await world.beat("a", 2)).error is NONE
        await trio.sleep(9)
        assert list(world.consumers.members) == ["a"]
        await trio.sleep(2)
        assert world.consumers.members == {}
        assert (await world.beat("a", 2)).error is ErrorCode.UNKNOWN_MEMBER_ID

    async def test_who_does_not_give_back_in_time_is_put_out_g4(self, autojump_clock: MockClock, world: World) -> None:
        await world.beat("a", 0)
        await world.beat("b", 0)
        assert (await world.beat("a", 2)).assignment == assignment(t=(0, 1))
        await trio.sleep(4)
        await world.beat("a", 2, reported=reported(t=(0, 1, 2)))
        await trio.sleep(1.1)
        assert list(world.consumers.members) == ["b"]

    async def test_who_gave_back_in_time_stays_g4(self, autojump_clock: MockClock, world: World) -> None:
        await world.beat("a", 0)
        await world.beat("b", 0)
        await world.beat("a", 2)
        await trio.sleep(4)
        assert (await world.beat("a", 2, reported=reported(t=(0, 1)))).member_epoch == 3
        await trio.sleep(5)
        assert set(world.consumers.members) == {"a", "b"}

    async def test_a_place_that_no_member_comes_back_to_is_given_up_with_its_session_g4(
        self, autojump_clock: MockClock, world: World
    ) -> None:
        await world.beat("a", 0, instance_id="i")
        await world.beat("a", -2, instance_id="i")
        await trio.sleep(11)
        assert world.consumers.members == {}

    async def test_a_write_that_is_refused_is_tried_again_g4(self, autojump_clock: MockClock, world: World) -> None:
        await world.beat("a", 0)
        world.log_of().refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        await trio.sleep(11)
        assert list(world.consumers.members) == ["a"]
        world.log_of().refuses = None
        await trio.sleep(2)
        assert world.consumers.members == {}


class TestRestarts:
    @NEEDS_RE2
    async def test_members_come_back_as_they_were_g8(
        self, autojump_clock: MockClock, world: World, nursery: trio.Nursery
    ) -> None:
        await world.beat("a", 0, regex="u+")
        await world.beat("b", 0)
        await world.beat("a", 2, reported=reported(t=(0, 1), u=(0, 1)))
        again = await world.again()
        assert again.consumers.members == world.consumers.members
        assert again.consumers.target == world.consumers.target
        assert again.consumers.resolved == world.consumers.resolved
        epoch = world.consumers.members["a"].epoch
        reply = await again.beat("a", epoch)
        assert (reply.error, reply.member_epoch) == (NONE, epoch)

    async def test_sessions_and_rebalances_start_over_g8(
        self, autojump_clock: MockClock, world: World, nursery: trio.Nursery
    ) -> None:
        await world.beat("a", 0)
        await world.beat("b", 0)
        await world.beat("a", 2)
        again = await world.again()
        await nursery.start(again.service.run)
        await again.beat("b", 3)
        await trio.sleep(5.1)
        assert list(again.consumers.members) == ["b"], "a gave nothing back"
        await trio.sleep(6)
        assert again.consumers.members == {}

    async def test_an_answer_waits_for_the_disk_g8(
        self, autojump_clock: MockClock, world: World, nursery: trio.Nursery
    ) -> None:
        world.log_of().hold()
        answers: list[HeartbeatReply] = []

        async def join() -> None:
            answers.append(await world.beat("a", 0))

        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == []
        world.log_of().release()
        await trio.testing.wait_all_tasks_blocked()
        assert [answer.member_epoch for answer in answers] == [2]

    async def test_a_refused_write_changes_nothing_g8(self, autojump_clock: MockClock, world: World) -> None:
        await world.beat("a", 0)
        world.log_of().refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await world.beat("b", 0)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert list(world.consumers.members) == ["a"]
        with pytest.raises(LogWriteFailed):
            world.log_of().append([], 0)


class TestSettingsOfOneGroup:
    """What was set for a resource of type GROUP stands over the broker's settings."""

    def world_with(self, config: GroupConfig, **texts: str) -> World:
        names = {name.replace("_", "."): text for name, text in texts.items()}
        topics = kit.Topics("t")
        configs = {ConfigResource(ConfigResourceType.GROUP, "g"): names}

        class Set(kit.Topics):
            @property
            def image(self) -> MetadataImage:
                return replace(topics.image, configs=configs)

        return World(config, None, Set("t"))

    async def test_they_hold_for_that_group_g4(self, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
        world = self.world_with(CONFIG, consumer_session_timeout_ms="3000", consumer_heartbeat_interval_ms="77")
        await nursery.start(world.service.run)
        assert (await world.beat("a", 0)).heartbeat_interval_ms == 77
        other = Heartbeat(
            group_id="h", member_id="a", member_epoch=0, rebalance_timeout_ms=1, topics=("t",), reported=()
        )
        assert (await world.service.consumers.heartbeat(other)).heartbeat_interval_ms == 5000
        await trio.sleep(3.1)
        assert world.consumers.members == {}

    async def test_what_was_set_under_other_bounds_is_brought_within_g4(self, autojump_clock: MockClock) -> None:
        bounds = {"consumer.heartbeat.interval.ms": (100, 200)}
        for text, holds in (("77", 100), ("150", 150), ("999", 200)):
            world = self.world_with(GroupConfig(group_consumer_bounds=bounds), consumer_heartbeat_interval_ms=text)
            assert (await world.beat("a", 0)).heartbeat_interval_ms == holds


@NEEDS_RE2
@pytest.mark.parametrize("name", ["group_id", "member_id", "instance_id", "regex"])
async def test_what_no_record_can_name_is_refused_g4(autojump_clock: MockClock, world: World, name: str) -> None:
    """A key's strings have two bytes of length; the request's have five."""
    fields = {"group_id": "g", "member_id": "a", "topics": ("t",), "rebalance_timeout_ms": 1, "reported": ()}
    for size, error in ((2**15 - 1, NONE), (2**15, ErrorCode.INVALID_REQUEST)):
        request = Heartbeat(**{**fields, name: "x" * size, "member_epoch": 0})  # type: ignore[arg-type]
        assert (await world.service.consumers.heartbeat(request)).error is error


class TestOperators:
    async def test_positions_outlive_the_change_of_protocol_g5(self, autojump_clock: MockClock, world: World) -> None:
        assert await world.commit(42) is NONE
        await world.beat("a", 0)
        assert await world.offset() == 42
        await world.beat("a", -1)
        await world.join(protocols=WANTS_T)
        assert await world.offset() == 42
        assert isinstance(world.group(), Empty)
        again = await world.again()
        assert await again.offset() == 42

    async def test_a_group_with_members_is_not_deleted_g11(self, autojump_clock: MockClock, world: World) -> None:
        await world.beat("a", 0)
        assert await world.service.admin.delete_groups(["g"]) == [ErrorCode.NON_EMPTY_GROUP]
        await world.beat("a", -1)
        assert await world.commit(1) is NONE
        assert await world.service.admin.delete_groups(["g"]) == [NONE]
        assert await world.service.admin.delete_groups(["g"]) == [ErrorCode.GROUP_ID_NOT_FOUND]
        assert await world.offset() == -1
        again = await world.again()
        assert again.service._shards.consumer_group("g") is None

    async def test_positions_in_subscribed_topics_are_not_deleted_g7(
        self, autojump_clock: MockClock, world: World
    ) -> None:
        await world.beat("a", 0)
        deleted = await world.service.positions.delete_offsets("g", [kit.T0])
        assert deleted.errors == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)

    async def test_both_protocols_are_counted_g11(self, autojump_clock: MockClock, world: World) -> None:
        await world.beat("a", 0)
        await world.service.positions.commit(kit.commit(1, group_id="h"))
        assert sorted(world.service.admin.census()) == [("classic", "Empty"), ("consumer", "Stable")]
