"""Members of share groups of a real broker over the wire (KIP-932): partitions, sessions, restarts, offsets."""

import time
from typing import Any

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api42_delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.api76_share_group_heartbeat import ShareGroupHeartbeatRequest
from fencepost.protocol.messages.api77_share_group_describe import ShareGroupDescribeRequest
from fencepost.protocol.messages.api90_describe_share_group_offsets import AskedGroup, DescribeShareGroupOffsetsRequest
from fencepost.protocol.messages.api91_alter_share_group_offsets import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsRequest,
)
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.share_members import ACCEPT, Ack, ShareMember, topic_id_of
from tests.kit.wire import Wire, batch_of

QUICK = {
    "group.share.min.session.timeout.ms": "600",
    "group.share.session.timeout.ms": "600",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
}


def beat(wire: Wire, member: str, epoch: int) -> Any:
    """A heartbeat in group g; one that joins subscribes to t."""
    request = ShareGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=None if epoch else ["t"]
    )
    return wire.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request)


def members(wire: Wire) -> dict[str, tuple[int, list[int]]]:
    """The epoch and the partitions of each member of group g."""
    [group] = wire.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, ShareGroupDescribeRequest(group_ids=["g"])).groups
    assert group.error_code == ErrorCode.NONE
    found = {}
    for one in group.members:
        topics = one.assignment.topic_partitions
        found[one.member_id] = (one.member_epoch, [number for topic in topics for number in topic.partitions])
    return found


def offsets(wire: Wire) -> dict[int, tuple[int, int]]:
    """The start offset and the lag of each partition that group g has."""
    request = DescribeShareGroupOffsetsRequest(groups=[AskedGroup(group_id="g", topics=None)])
    [group] = wire.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, request).groups
    return {one.partition_index: (one.start_offset, one.lag) for topic in group.topics for one in topic.partitions}


def alter(wire: Wire, start_offset: int) -> Any:
    partition = AlteredPartition(partition_index=0, start_offset=start_offset)
    request = AlterShareGroupOffsetsRequest(group_id="g", topics=[AlteredTopic(topic_name="t", partitions=[partition])])
    return wire.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, request)


def test_two_members_share_a_topic_until_one_is_silent_g4(start_broker: StartBroker) -> None:
    """GroupMetadataManager.shareGroupHeartbeat, shareGroupFenceMember."""
    with Wire(start_broker(settings=QUICK).connect()) as wire:
        wire.create_topic("t", partitions=3)
        one = beat(wire, "one", 0)
        assert (one.error_code, one.member_epoch, one.heartbeat_interval_ms) == (ErrorCode.NONE, 2, 200)
        assert [topic.partitions for topic in one.assignment.topic_partitions] == [[0, 1, 2]]
        assert beat(wire, "two", 0).member_epoch == 3
        assert beat(wire, "one", 2).member_epoch == 3
        assert sorted(number for _, held in members(wire).values() for number in held) == [0, 1, 2]
        deadline = time.monotonic() + 5
        epoch = 3
        while "two" in members(wire):
            assert time.monotonic() < deadline
            epoch = beat(wire, "one", epoch).member_epoch
            time.sleep(0.1)
        beat(wire, "one", epoch)
        assert members(wire) == {"one": (4, [0, 1, 2])}
        assert beat(wire, "two", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_outlives_kill_9_of_the_broker_g8(file_broker: BrokerProcess) -> None:
    """Its members keep their epochs and partitions; nothing is assigned anew."""
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("t", partitions=3)
        beat(wire, "one", 0)
        before = members(wire)
    file_broker.restart()
    with Wire(file_broker.connect()) as wire:
        assert members(wire) == before == {"one": (2, [0, 1, 2])}
        assert (beat(wire, "one", 2).error_code, members(wire)) == (ErrorCode.NONE, before)


def test_records_from_the_join_to_the_deletion_of_the_group_g11(file_broker: BrokerProcess) -> None:
    """The group's partitions begin where an operator says; the lag is what is left; a deleted group has no state."""
    with Wire(file_broker.connect()) as wire, Wire(file_broker.connect()) as other:
        wire.create_topic("t", partitions=1)
        for number in range(10):
            wire.produce("t", batch_of(b"%d" % number))
        assert alter(wire, 4).responses[0].partitions[0].error_code == ErrorCode.NONE
        assert offsets(wire) == {0: (4, 6)}
        epoch = beat(wire, "one", 0).member_epoch
        member = ShareMember(other, "g", "one", topic_id_of(wire, "t"))
        assert [offset for offset, _ in member.acquire()] == [4, 5, 6, 7, 8, 9]
        assert member.acknowledge(Ack(0, 4, 6, ACCEPT)) == [0]
        assert offsets(wire)[0][1] == 3
        assert alter(wire, 0).error_code == ErrorCode.NON_EMPTY_GROUP
        assert beat(wire, "one", -1).error_code == ErrorCode.NONE
        [deleted] = wire.call(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"])).results
        assert (deleted.error_code, epoch, offsets(wire)) == (ErrorCode.NONE, 2, {})
