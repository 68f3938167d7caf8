"""Consumer groups over time: sessions, rebalances and restarts; groups that change their protocol (G4, G5, G8)."""

from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer import embedded
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.requests import Heartbeat, HeartbeatReply
from fencepost.coordinator.group.state import CompletingRebalance, Empty, PreparingRebalance, Stable
from fencepost.coordinator.group.turn import JoinReply, MemberName
from fencepost.coordinator.metadata.image import ConfigResource, MetadataImage, ResourceType
from fencepost.coordinator.ports import LogWriteFailed
from fencepost.protocol.errors import ErrorCode
from tests.unit.group import kit
from tests.unit.group.consumer.kit import assignment, reported

NONE = ErrorCode.NONE
CONFIG = GroupConfig(group_consumer_session_timeout_ms=10_000)


def subscription(*topics: str, owned: tuple[int, ...] = ()) -> bytes:
    """What a classic consumer says in its Join."""
    has = [embedded._Topic(topic="t", partitions=list(owned))] if owned else []
    return b"\0\1" + embedded._Subscription.encode(embedded._Subscription(topics=list(topics), owned_partitions=has), 1)


def given(*partitions: int, user_data: bytes | None = None) -> bytes:
    """What a classic leader hands out."""
    topics = [embedded._Topic(topic="t", partitions=list(partitions))]
    return b"\0\1" + embedded._Assignment.encode(
        embedded._Assignment(assigned_partitions=topics, user_data=user_data), 1
    )


WANTS_T = (("range", subscription("t")),)


class World(kit.World):
    """A service with members of the consumer protocol."""

    def __init__(self, config: GroupConfig = CONFIG, *more: Any) -> None:
        super().__init__(config, *more)

    async def again(self) -> "World":
        world = World(self.config, self.logs, self.topics)
        await world.service.start()
        return world

    async def beat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatReply:
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 5000, "topics": ("t",), "reported": ()} | fields
        request = Heartbeat(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        return await self.service.consumers.heartbeat(request)

    def beat_of(self, reply: JoinReply) -> ErrorCode:
        """A classic member's heartbeat."""
        return self.service.heartbeat("g", reply.member_id, None, reply.generation)

    @property
    def consumers(self) -> ConsumerGroup:
        found = self.service._shards.consumer_group("g")
        assert found is not None
        return found

    async def classic(self, *given_to_leader: int, **more: Any) -> JoinReply:
        """A stable classic group of one, which has these partitions."""
        reply = await self.join(protocols=WANTS_T, member_id_required=False, **more)
        handed = ((reply.member_id, given(*given_to_leader)),)
        assert (await self.sync(reply.member_id, reply.generation, assignments=handed)).error is NONE
        return reply


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

    async def test_a_place_that_nobody_comes_back_to_is_given_up_with_its_session_g4(
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


class TestUpgrade:
    """A classic group of consumers becomes a consumer group under its members."""

    async def test_members_keep_what_they_have_and_hear_of_a_rebalance_g5(
        self, autojump_clock: MockClock, world: World
    ) -> None:
        reply = await world.classic(0, 1, 2)
        assert (await world.beat("x", 0)).member_epoch == 2
        member = world.consumers.members[reply.member_id]
        assert (member.epoch, member.classic is not None) == (1, True)
        assert world.beat_of(reply) is ErrorCode.REBALANCE_IN_PROGRESS
        again = await world.again()
        assert again.consumers.members == world.consumers.members

    async def test_a_classic_member_that_does_not_rejoin_is_put_out_g5(
        self, autojump_clock: MockClock, world: World
    ) -> None:
        reply = await world.classic(0, 1, 2, session_timeout_ms=60_000, rebalance_timeout_ms=3000)
        await world.beat("x", 0)
        world.beat_of(reply)
        await trio.sleep(2)
        world.beat_of(reply)
        await trio.sleep(1.1)
        assert list(world.consumers.members) == ["x"]

    async def test_a_classic_member_that_does_not_sync_is_put_out_g5(
        self, autojump_clock: MockClock, world: World
    ) -> None:
        reply = await world.classic(0, 1, 2, session_timeout_ms=60_000)
        await world.beat("x", 0)
        fields = {"protocols": (("range", subscription("t", owned=(0, 1))),), "rebalance_timeout_ms": 3000}
        assert (await world.join(reply.member_id, session_timeout_ms=60_000, **fields)).generation == 2
        await trio.sleep(3.1)
        assert list(world.consumers.members) == ["x"]

    async def test_parked_joins_are_sent_round_again_g5(
        self, autojump_clock: MockClock, world: World, nursery: trio.Nursery
    ) -> None:
        await world.classic(0, 1, 2)
        told: list[ErrorCode] = []

        async def join() -> None:
            told.append((await world.join(protocols=WANTS_T, member_id_required=False)).error)

        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(world.group(), PreparingRebalance)
        await world.beat("x", 0)
        await trio.testing.wait_all_tasks_blocked()
        assert told == [ErrorCode.REBALANCE_IN_PROGRESS]
        assert len(world.consumers.members) == 3

    async def test_parked_syncs_are_sent_round_again_g5(self, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
        world = World(GroupConfig(group_initial_rebalance_delay_ms=3000))
        await nursery.start(world.service.run)

        async def member() -> None:
            reply = await world.join(protocols=WANTS_T, member_id_required=False)
            if not reply.members:
                told.append((await world.sync(reply.member_id, reply.generation)).error)

        told: list[ErrorCode] = []
        nursery.start_soon(member)
        nursery.start_soon(member)
        await trio.sleep(7)
        assert isinstance(world.group(), CompletingRebalance)
        await world.beat("x", 0)
        await trio.testing.wait_all_tasks_blocked()
        assert told == [ErrorCode.REBALANCE_IN_PROGRESS]

    @pytest.mark.parametrize(
        ("config", "changes", "handed"),
        [
            (GroupConfig(group_consumer_migration_policy="downgrade"), {}, given(0)),
            (GroupConfig(group_consumer_migration_policy="disabled"), {}, given(0)),
            (GroupConfig(group_consumer_max_size=0), {}, given(0)),
            (CONFIG, {"protocol_type": "connect"}, given(0)),
            (CONFIG, {"protocols": (("range", b"\0"),)}, given(0)),
            (CONFIG, {}, b"\0\0\0\0"),
            (CONFIG, {}, given(0, user_data=b"mine")),
        ],
    )
    async def test_what_can_not_be_upgraded_is_left_alone_g5(
        self, autojump_clock: MockClock, config: GroupConfig, changes: dict[str, Any], handed: bytes
    ) -> None:
        """The policy; too many members; no consumers; malformed bytes; what a custom assignor said to itself."""
        world = World(config)
        asked = {"protocols": WANTS_T, "member_id_required": False, **changes}
        reply = await world.join(**asked)
        kind = str(asked.get("protocol_type", "consumer"))
        await world.sync(reply.member_id, 1, assignments=((reply.member_id, handed),), protocol_type=kind)
        assert (await world.beat("x", 0)).error is ErrorCode.GROUP_ID_NOT_FOUND
        assert isinstance(world.group(), Stable)


class TestDowngrade:
    """The last member of the consumer protocol goes, and classic ones stay."""

    async def mixed(self, config: GroupConfig = CONFIG) -> tuple[World, JoinReply]:
        world = World(config)
        await world.beat("x", 0)
        reply = await world.join(protocols=WANTS_T, member_id_required=False, session_timeout_ms=30_000)
        assert (await world.sync(reply.member_id, reply.generation)).error is NONE
        return world, reply

    async def test_by_leaving_g5(self, autojump_clock: MockClock) -> None:
        world, reply = await self.mixed()
        await world.beat("x", -1)
        group = world.group()
        assert isinstance(group, PreparingRebalance)
        assert (group.generation, list(group.members)) == (3, [reply.member_id])
        again = await world.again()
        assert isinstance(again.group(), Stable), "what is in the log is the group before its rebalance"

    async def test_by_silence_g5(self, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
        world, reply = await self.mixed()
        await nursery.start(world.service.run)
        await trio.sleep(11)
        assert isinstance(world.group(), PreparingRebalance)
        rejoined = await world.join(reply.member_id, protocols=WANTS_T)
        assert (rejoined.error, rejoined.generation) == (NONE, 4)

    @pytest.mark.parametrize(
        "config", [GroupConfig(group_consumer_migration_policy="upgrade"), GroupConfig(group_max_size=0)]
    )
    async def test_not_where_it_may_not_be_g5(self, autojump_clock: MockClock, config: GroupConfig) -> None:
        world, reply = await self.mixed(config)
        await world.beat("x", -1)
        assert list(world.consumers.members) == [reply.member_id]

    async def test_not_where_a_member_could_not_be_told_its_assignment_g5(self, autojump_clock: MockClock) -> None:
        """Only what it says under its first protocol is read when it joins; another one may win the vote."""
        world = World()
        await world.beat("x", 0)
        good = subscription("t")
        asked = {"member_id_required": False, "session_timeout_ms": 30_000}
        first = await world.join(protocols=(("range", good), ("sticky", b"")), **asked)
        for _ in range(2):
            assert (await world.join(protocols=(("sticky", good), ("range", good)), **asked)).error is NONE
        await world.beat("x", -1)
        assert len(world.consumers.members) == 3
        await world.service.leave("g", [MemberName(first.member_id)])
        assert isinstance(world.group(), PreparingRebalance)

    async def test_with_migration_off_no_classic_member_comes_in_g5(self, autojump_clock: MockClock) -> None:
        world = World(GroupConfig(group_consumer_migration_policy="disabled"))
        await world.beat("x", 0)
        reply = await world.join(protocols=WANTS_T, member_id_required=False)
        assert reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class TestSettingsOfOneGroup:
    """What was set for a resource of type GROUP stands over the broker's settings."""

    def world_with(self, config: GroupConfig, **texts: str) -> World:
        names = {name.replace("_", "."): text for name, text in texts.items()}
        topics = kit.Topics("t")
        configs = {ConfigResource(ResourceType.GROUP, "g"): names}

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
        assert await world.service.delete_groups(["g"]) == [ErrorCode.NON_EMPTY_GROUP]
        await world.beat("a", -1)
        assert await world.commit(1) is NONE
        assert await world.service.delete_groups(["g"]) == [NONE]
        assert await world.service.delete_groups(["g"]) == [ErrorCode.GROUP_ID_NOT_FOUND]
        assert await world.offset() == -1
        again = await world.again()
        assert again.service._shards.consumer_group("g") is None

    async def test_positions_in_subscribed_topics_are_not_deleted_g7(
        self, autojump_clock: MockClock, world: World
    ) -> None:
        await world.beat("a", 0)
        deleted = await world.service.delete_offsets("g", [kit.T0])
        assert deleted.errors == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)

    async def test_both_protocols_are_counted_g11(self, autojump_clock: MockClock, world: World) -> None:
        await world.beat("a", 0)
        await world.service.commit(kit.commit(1, group_id="h"))
        assert world.service.groups_by_protocol() == {"classic": 1, "consumer": 1}
        assert world.service.consumer_groups_by_state() == {"Stable": 1}
