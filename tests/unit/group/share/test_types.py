"""A group id has one type: what requests of other types get (KIP-932)."""

import pytest

from fencepost.coordinator.group.consumer.requests import Heartbeat
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.unit.group.kit import T0
from tests.unit.group.share.kit import NONE, World


async def consumer_beat(world: World, epoch: int) -> ErrorCode:
    request = Heartbeat("g", "c", epoch, rebalance_timeout_ms=1000, topics=("t",), reported=())
    return (await world.service.consumers.heartbeat(request)).error


class TestInAShareGroup:
    @pytest.fixture
    async def share(self, world: World) -> World:
        """Group g is an empty share group."""
        await world.beat("a", 0)
        await world.beat("a", -1)
        return world

    async def test_a_classic_member_is_refused_g5(self, share: World) -> None:
        """GroupMetadataManager.classicGroupJoin, also where the group is empty; the others know no such member."""
        joined = await share.join("")
        assert (joined.error, joined.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        assert (await share.sync("m", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert share.service.classic.heartbeat("g", "m", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID

    async def test_a_member_of_the_consumer_protocol_is_refused_g5(self, share: World) -> None:
        """GroupMetadataManager.getOrMaybeCreateConsumerGroup."""
        for epoch in (0, 1, -1):
            assert await consumer_beat(share, epoch) is ErrorCode.GROUP_ID_NOT_FOUND
        described = share.service.consumers.describe("g")
        assert (described.error, described.text) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Group g is not a consumer group.",
        )

    async def test_it_has_no_committed_offsets_g6(self, share: World) -> None:
        """ShareGroup.validateOffsetCommit, validateOffsetFetch, validateOffsetDelete."""
        assert await share.commit(5) is ErrorCode.GROUP_ID_NOT_FOUND
        assert await share.offset() == -1
        deleted = await share.service.positions.delete_offsets("g", [TopicPartition("t", 0)])
        assert deleted.error is ErrorCode.GROUP_ID_NOT_FOUND

    async def test_it_is_listed_counted_and_described_under_its_type_g11(self, share: World) -> None:
        """ListGroups filters by type and state (KIP-518, KIP-848); DescribeGroups has classic groups only."""
        admin = share.service.admin
        [listed] = await admin.list_groups([], ["Share"])
        assert listed == ("g", "share", "Empty", "share")
        assert await admin.list_groups(["stable"], ["share"]) == []
        assert await admin.list_groups([], ["classic", "consumer"]) == []
        assert list(admin.census()) == [("share", "Empty")]
        [described] = await admin.describe(["g"])
        assert (described.error, described.state, described.text) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Dead",
            "Group g is not a classic group.",
        )

    async def test_it_does_not_expire_g7(self, share: World) -> None:
        """ShareGroup.shouldExpire."""
        assert list(share.service._shards.forget_expired(0)) != []
        assert share.share.state == "Empty"


class TestInAnotherGroup:
    async def test_a_share_member_is_refused_also_where_it_is_empty_g5(self, world: World) -> None:
        """GroupMetadataManager.getOrMaybeCreateShareGroup."""
        assert await world.commit(5) is NONE
        for epoch in (0, 1, -1):
            assert await world.refused("a", epoch) is ErrorCode.GROUP_ID_NOT_FOUND
        described = world.service.shares.describe("g")
        assert (described.error, described.text) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a share group.")
        assert await world.offset(T0) == 5

    async def test_a_consumer_group_is_not_a_share_group_g5(self, world: World) -> None:
        assert await consumer_beat(world, 0) is NONE
        assert await world.refused("a", 0) is ErrorCode.GROUP_ID_NOT_FOUND
