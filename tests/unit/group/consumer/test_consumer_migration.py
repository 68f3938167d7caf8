"""Groups that change their protocol while members go on: up, down, and where that may not be (G5)."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from fencepost.coordinator.group.commands import JoinReply, MemberName, SyncReply
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer import embedded, migration
from fencepost.coordinator.group.consumer.context import GroupContext, View
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.state import CompletingRebalance, Member, PreparingRebalance, Stable
from fencepost.protocol.errors import ErrorCode
from tests.unit.group.consumer.kit import assignment, image, topic_id
from tests.unit.group.consumer.service_kit import CONFIG, NONE, WANTS_T, World, given, subscription
from tests.unit.group.kit import join, sync


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    made = World()
    await nursery.start(made.service.run)
    return made


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

    async def test_who_was_put_out_and_comes_back_with_partitions_hears_of_it_g5(
        self, autojump_clock: MockClock, world: World
    ) -> None:
        """Kafka would take it in as new, and it would read on what others have got meanwhile."""
        reply = await world.classic(0, 1, 2, session_timeout_ms=6000)
        await world.beat("x", 0)
        await trio.sleep(6.1)
        assert list(world.consumers.members) == ["x"]
        fields = {"member_id_required": True, "protocols": (("range", subscription("t", owned=(0, 1))),)}
        assert (await world.join(reply.member_id, **fields)).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert list(world.consumers.members) == ["x"]
        fields["protocols"] = (("range", subscription("t")),)
        promised = await world.join("", **fields)
        assert promised.error is ErrorCode.MEMBER_ID_REQUIRED
        assert not (await world.join(promised.member_id, **fields)).error
        assert len(world.consumers.members) == 2

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

    @pytest.mark.parametrize("asks", ["join", "sync"])
    async def test_a_classic_member_asks_before_and_is_answered_after_it_g5(self, asks: str) -> None:
        """Its connection's task takes the answer over a turn of the loop later."""
        world, reply = await self.mixed()
        world.log_of().hold()
        soon: Any
        if asks == "join":
            soon = world.service.classic.ask_join(join(reply.member_id, protocols=WANTS_T))
        else:
            soon = world.service.classic.ask_sync(sync(reply.member_id, reply.generation))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.beat, "x", -1)
            await trio.testing.wait_all_tasks_blocked()
            assert isinstance(world.group(), PreparingRebalance)
            world.log_of().release()
        assert (soon if isinstance(soon, SyncReply) else await soon).error is NONE

    async def test_what_members_read_is_theirs_until_they_have_rejoined_g5(self, autojump_clock: MockClock) -> None:
        """Down, and up again before the rebalance is over: nobody gets what a classic member has not given back."""
        world = World()
        classic = await world.join(protocols=WANTS_T, member_id_required=False)
        await world.sync(classic.member_id, classic.generation, assignments=((classic.member_id, given(0, 1, 2)),))
        await world.beat("x", 0)
        await world.beat("y", 0)
        await world.beat("x", -1)
        assert world.consumers.members[classic.member_id].assigned == {topic_id("t"): {0: 1, 1: 1, 2: 1}}
        assert world.consumers.target[classic.member_id] != assignment(t=(0, 1, 2))
        await world.beat("y", -1)
        assert isinstance(world.group(), PreparingRebalance)
        assert (await world.beat("z", 0)).assignment == {}

    async def test_a_classic_process_takes_the_last_static_place_and_waits_for_what_others_read_g5(
        self, autojump_clock: MockClock, world: World
    ) -> None:
        """Partition 2 is meant for the place, and its reader has still to give it up: it stays that one's meanwhile."""
        reader = await world.classic(0, 1, 2)
        assert (await world.beat("x", 0, instance_id="i")).assignment == {}
        heir = await world.join(member_id_required=False, protocols=WANTS_T, group_instance_id="i")
        assert isinstance(world.group(), PreparingRebalance)
        written = (await world.again()).group()
        assert isinstance(written, Stable)
        given_now = {name: embedded.read_assignment(one.assignment).partitions for name, one in written.members.items()}
        assert given_now == {reader.member_id: {"t": frozenset((0, 1, 2))}, heir.member_id: {}}
        assert (await world.sync(heir.member_id, heir.generation)).assignment == b""

    async def test_a_classic_process_takes_the_last_static_place_of_a_group_at_rest_g5(
        self, autojump_clock: MockClock, world: World
    ) -> None:
        """Everybody has what is meant for it: there is nothing to rebalance."""
        reader = await world.classic(0, 1, 2)
        await world.beat("x", 0, instance_id="i")
        left = (("range", subscription("t", owned=(0, 1))),)
        assert (await world.join(reader.member_id, protocols=left)).generation == 2
        assert (await world.beat("x", 2, instance_id="i")).assignment == assignment(t=(2,))
        heir = await world.join(member_id_required=False, protocols=WANTS_T, group_instance_id="i")
        assert isinstance(world.group(), Stable)
        synced = await world.sync(heir.member_id, heir.generation)
        assert embedded.read_assignment(synced.assignment).partitions == {"t": frozenset((2,))}

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
        await world.service.classic.leave("g", [MemberName(first.member_id)])
        assert isinstance(world.group(), PreparingRebalance)

    async def test_with_migration_off_no_classic_member_comes_in_g5(self, autojump_clock: MockClock) -> None:
        world = World(GroupConfig(group_consumer_migration_policy="disabled"))
        await world.beat("x", 0)
        reply = await world.join(protocols=WANTS_T, member_id_required=False)
        assert reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class TestWhatNobodyWasGiven:
    """The classic group is made over while some partition is nobody's, as between two rounds."""

    async def test_what_a_cooperative_member_still_gives_up_is_waited_for_g5(
        self, autojump_clock: MockClock, world: World
    ) -> None:
        """KIP-429: it joined with 0 to 2, was left 0, and reads 1 and 2 until it joins again. Kafka hands them out.

        As at every upgrade, what it is told is in the records: a restart in between changes nothing.
        """
        owned = {"protocols": (("cooperative-sticky", subscription("t", owned=(0, 1, 2))),)}
        left = {"protocols": (("cooperative-sticky", subscription("t", owned=(0,))),)}
        reply = await world.join(member_id_required=False, **owned)
        await world.sync(reply.member_id, reply.generation, assignments=((reply.member_id, given(0)),))
        newcomer = await world.beat("x", 0)
        assert newcomer.assignment == {}
        assert world.consumers.members[reply.member_id].revoking == {topic_id("t"): {1: 1, 2: 1}}
        assert (await world.again()).consumers.members == world.consumers.members
        assert world.beat_of(reply) is ErrorCode.REBALANCE_IN_PROGRESS
        assert (await world.join(reply.member_id, **owned)).generation == 1, "it still has them"
        assert (await world.beat("x", newcomer.member_epoch)).assignment is None
        assert (await world.join(reply.member_id, **left)).generation == newcomer.member_epoch
        assert (await world.beat("x", newcomer.member_epoch)).assignment == assignment(t=(2,))

    def test_what_two_claim_is_the_later_ones_g5(self) -> None:
        """A member that missed a round says it has what it had then; and what somebody was given is nobody else's."""
        old = (("cooperative-sticky", subscription("t", owned=(0, 1, 2), generation=3)),)
        new = (("cooperative-sticky", subscription("t", owned=(2, 3), generation=4)),)
        members = {
            "old": Member("old", None, "c", "/h", 10_000, 60_000, old, given(0)),
            "new": Member("new", None, "c", "/h", 10_000, 60_000, new, given(1)),
        }
        context = GroupContext(ConsumerGroup("g"), View(image(t=4), 0, CONFIG, 1))
        migration.upgrade(context, Stable(5, "consumer", "cooperative-sticky", "old", members))
        found = {name: dict(member.revoking) for name, member in context.group.members.items()}
        assert found == {"old": {}, "new": {topic_id("t"): {2: 5, 3: 5}}}

    async def test_an_heir_that_wants_nothing_new_gets_what_no_member_was_given_g5(
        self, autojump_clock: MockClock, world: World
    ) -> None:
        """The group is in the middle of a rebalance, nobody has anything, and nothing else would raise its epoch."""
        classic = {"protocols": WANTS_T, "group_instance_id": "i"}
        reply = await world.join(member_id_required=False, **classic)
        assert isinstance(world.group(), CompletingRebalance)
        heir = await world.beat("x", 0, instance_id="i")
        assert heir.assignment == assignment(t=(0, 1, 2))
        assert heir.member_epoch == reply.generation + 1
