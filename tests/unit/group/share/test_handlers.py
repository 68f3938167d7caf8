"""The share group APIs of the group coordinator through their own bytes: 76, 77, 90, 91, 92 (KIP-932)."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import trio

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.place import Alone, Place
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    api76_share_group_heartbeat as api76,
)
from fencepost.protocol.messages import (
    api77_share_group_describe as api77,
)
from fencepost.protocol.messages import (
    api90_describe_share_group_offsets as api90,
)
from fencepost.protocol.messages import (
    api91_alter_share_group_offsets as api91,
)
from fencepost.protocol.messages import (
    api92_delete_share_group_offsets as api92,
)
from fencepost.protocol.topics import TopicPartition
from tests.unit.group import handler_kit
from tests.unit.group.share.kit import World, key, topic_id

NO_ID = bytes(16)


@dataclass
class Log:
    high_watermark: int = 50


@dataclass
class ShareNode(handler_kit.Node):
    """As much of a node as the handlers of share groups ask of."""

    world: World = field(default_factory=World)
    share_protocol: bool = True
    authorizer: Any = None
    place: Place = field(default_factory=lambda: Alone(load_config()))

    def __post_init__(self) -> None:
        self.groups = self.world.service
        self.metadata = self.world.topics
        self._dispatch = handler_kit.Dispatch()
        self.logs = {TopicPartition("t", number): Log() for number in range(2)}

    def partition(self, partition: TopicPartition) -> Log | None:
        return self.logs.get(partition)

    def absence(self, partition: TopicPartition) -> ErrorCode:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def beat(self, epoch: int, *topics: str, group_id: str = "g") -> Any:
        request = api76.ShareGroupHeartbeatRequest(
            group_id=group_id, member_id="a", member_epoch=epoch, subscribed_topic_names=list(topics) or None
        )
        return await self.ask(76, 1, request)

    async def describe_offsets(self, topics: list[api90.AskedTopic] | None, version: int = 1) -> Any:
        request = api90.DescribeShareGroupOffsetsRequest(groups=[api90.AskedGroup(group_id="g", topics=topics)])
        [group] = (await self.ask(90, version, request)).groups
        return group

    async def alter(self, *starts: tuple[str, int, int]) -> Any:
        topics = [
            api91.AlteredTopic(
                topic_name=name, partitions=[api91.AlteredPartition(partition_index=number, start_offset=offset)]
            )
            for name, number, offset in starts
        ]
        return await self.ask(91, 0, api91.AlterShareGroupOffsetsRequest(group_id="g", topics=topics))

    async def delete(self, *names: str, group_id: str = "g") -> Any:
        topics = [api92.DeletedTopic(topic_name=name) for name in names]
        return await self.ask(92, 0, api92.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=topics))


@pytest.fixture
async def node(nursery: trio.Nursery) -> ShareNode:
    """A node whose group service runs."""
    node = ShareNode()
    await nursery.start(node.groups.run)
    return node


async def test_a_member_joins_and_is_described_g4_g11(node: ShareNode) -> None:
    reply = await node.beat(0, "t")
    assert (reply.error_code, reply.member_id, reply.member_epoch) == (0, "a", 2)
    assert [(one.topic_id, one.partitions) for one in reply.assignment.topic_partitions] == [(topic_id("t"), [0, 1, 2])]
    assert (await node.beat(2)).assignment is None
    asked = api77.ShareGroupDescribeRequest(group_ids=["g", "none"], include_authorized_operations=True)
    group, none = (await node.ask(77, 1, asked)).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        2,
        2,
        "simple",
    )
    [member] = group.members
    assert (member.member_id, member.member_epoch, member.client_id, member.client_host) == ("a", 2, "c", "/127.0.0.1")
    assert member.subscribed_topic_names == ["t"]
    assert [(one.topic_name, one.partitions) for one in member.assignment.topic_partitions] == [("t", [0, 1, 2])]
    assert (none.error_code, none.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")


async def test_where_share_groups_are_disabled_all_is_unsupported_version_g4(node: ShareNode) -> None:
    """KafkaApis.isShareGroupProtocolEnabled."""
    node.share_protocol = False
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    assert (await node.beat(0, "t")).error_code == unsupported
    [group] = (await node.ask(77, 1, api77.ShareGroupDescribeRequest(group_ids=["g"]))).groups
    assert (group.group_id, group.error_code) == ("g", unsupported)
    assert (await node.describe_offsets(None)).error_code == unsupported
    assert (await node.alter(("t", 0, 5))).error_code == unsupported
    assert (await node.delete("t")).error_code == unsupported


class TestOffsets:
    async def test_a_group_that_is_not_there_yet_begins_where_it_is_told_to_g11(self, node: ShareNode) -> None:
        """GroupMetadataManager.alterShareGroupOffsets creates the group (KIP-1323)."""
        reply = await node.alter(("t", 0, 7), ("t", 9, 7), ("none", 0, 7))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = [(one.topic_name, one.topic_id, one.partitions[0].error_code) for one in reply.responses]
        assert found == [("t", topic_id("t"), 0), ("t", topic_id("t"), unknown), ("none", NO_ID, unknown)]
        assert node.world.states.states[key(0)].start_offset == 7
        assert (await node.beat(0, "t")).error_code == 0
        assert node.world.states.states[key(0)].start_offset == 7
        assert node.world.states.states[key(1)].start_offset == 0, "added to a topic that the group has"

    async def test_each_reset_has_an_epoch_of_its_own_g11(self, node: ShareNode) -> None:
        """In Kafka all resets of an empty group have the same: a leader could write to the state after the next one.

        Also within one second, and where the group's last coordinator had a clock that was ahead.
        """
        states, epochs = node.world.states.states, []
        for _ in range(3):
            await node.alter(("t", 0, 7))
            epochs.append(states[key(0)].state_epoch)
        states[key(0)] = states[key(0)]._replace(state_epoch=2**30)
        await node.alter(("t", 0, 8), ("t", 1, 8))
        epochs += states[key(0)].state_epoch, states[key(1)].state_epoch
        assert [after - before for before, after in pairwise(epochs)] == [1, 1, 2**30 - epochs[2] + 1, 0]

    async def test_a_group_with_members_keeps_its_offsets_g11(self, node: ShareNode) -> None:
        """GroupMetadataManager.throwIfShareGroupIsNotEmpty, ShareGroup.validateDeleteGroup."""
        await node.beat(0, "t")
        for reply in (await node.alter(("t", 0, 7)), await node.delete("t")):
            assert (reply.error_code, reply.responses) == (ErrorCode.NON_EMPTY_GROUP, [])

    async def test_a_refused_partition_has_its_own_error_g11(self, node: ShareNode) -> None:
        """GroupCoordinatorService.persisterInitialize."""
        node.world.states.refuses[key(1)] = ErrorCode.FENCED_STATE_EPOCH
        reply = await node.alter(("t", 0, 7), ("t", 1, 7))
        assert [one.partitions[0].error_code for one in reply.responses] == [0, ErrorCode.FENCED_STATE_EPOCH]

    async def test_all_that_a_group_has_with_its_lag_g11(self, node: ShareNode) -> None:
        """GroupCoordinatorService.computeShareGroupLagAndBuildResponse: end - start - completed (KIP-1226)."""
        await node.alter(("t", 0, 7), ("t", 2, 7), ("u", 0, -1))
        group = await node.describe_offsets(None)
        found = {
            (topic.topic_name, one.partition_index): (one.start_offset, one.leader_epoch, one.lag, one.error_code)
            for topic in group.topics
            for one in topic.partitions
        }
        assert found == {
            ("t", 0): (7, 7, 41, 0),
            ("t", 2): (0, 0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ("u", 0): (-1, 7, -1, 0),
        }
        assert (await node.describe_offsets(None, version=0)).topics[0].partitions[0].start_offset == 7

    async def test_what_has_no_state_is_no_error_g11(self, node: ShareNode) -> None:
        """GroupCoordinatorService.describeShareGroupOffsets: as OffsetFetch without an offset."""
        asked = [api90.AskedTopic(topic_name=name, partitions=[1]) for name in ("t", "none")]
        group = await node.describe_offsets(asked)
        found = [(one.topic_name, one.topic_id, one.partitions[0].start_offset) for one in group.topics]
        assert found == [("t", topic_id("t"), -1), ("none", NO_ID, -1)]
        assert [one.partitions[0].error_code for one in group.topics] == [0, 0]
        assert (await node.describe_offsets([])).topics == []

    async def test_a_topic_can_be_forgotten_g11(self, node: ShareNode) -> None:
        """GroupMetadataManager.sharePartitionsEligibleForOffsetDeletion, completeDeleteShareGroupOffsets."""
        assert (await node.delete("t")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await node.delete("t", group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
        await node.alter(("t", 0, 7), ("u", 0, 3))
        reply = await node.delete("t", "none", "t")
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [(one.topic_name, one.error_code) for one in reply.responses] == [("t", 0), ("none", unknown), ("t", 0)]
        assert set(node.world.states.states) == {key(0, "u")}
        [again] = (await node.delete("t")).responses
        assert (again.error_code, again.error_message) == (unknown, "There is no offset information to delete.")

    async def test_a_deletion_that_failed_is_tried_again_g11(self, node: ShareNode) -> None:
        await node.alter(("t", 0, 7))
        node.world.states.refuses[key(0)] = ErrorCode.NOT_COORDINATOR
        [refused] = (await node.delete("t")).responses
        assert (refused.error_code, refused.topic_id) == (ErrorCode.NOT_COORDINATOR, topic_id("t"))
        node.world.states.refuses.clear()
        [reply] = (await node.delete("t")).responses
        assert reply.error_code == 0
        assert node.world.share.partitions.topic_ids == set()
        assert node.world.states.states == {}
