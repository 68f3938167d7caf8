"""The bytes of a share group's records: Kafka's keys 10 to 15, whose values are version 0 and flexible."""

from collections.abc import Iterable, Mapping

from fencepost.coordinator.group.consumer.codec import (
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupKey,
    MemberKey,
    TopicPartition,
    group_key,
    member_key,
    read_target,
    read_target_epoch,
    read_value,
    target_epoch_value,
    target_value,
    topic_partitions,
    written,
)
from fencepost.coordinator.group.consumer.records import GroupEpoch
from fencepost.coordinator.group.share.member import ShareMember
from fencepost.coordinator.group.share.partitions import Begun, GroupPartitions
from fencepost.coordinator.group.share.records import (
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    SharePartitionsRecord,
    ShareRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
)
from fencepost.protocol.schema import Int8, Int32, Int64, MessageValue, String, Uuid, Value

MEMBER, GROUP, TARGET, TARGET_MEMBER, CURRENT, PARTITIONS = 10, 11, 12, 13, 14, 15
KEY_VERSIONS = frozenset({MEMBER, GROUP, TARGET, TARGET_MEMBER, CURRENT, PARTITIONS})
_V0 = (0, 0)


class ShareGroupMemberMetadataValue(MessageValue, versions=_V0, flexible=0):
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []


class ShareGroupMetadataValue(MessageValue, versions=_V0, flexible=0):
    epoch: Int32 = 0
    metadata_hash: Int64 = 0


class ShareGroupCurrentMemberAssignmentValue(MessageValue, versions=_V0, flexible=0):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartition] = []


class TopicPartitionsInfo(Value):
    topic_id: Uuid = bytes(16)
    topic_name: String = ""
    partitions: list[Int32] = []


class TopicInfo(Value):
    topic_id: Uuid = bytes(16)
    topic_name: String = ""


class ShareGroupStatePartitionMetadataValue(MessageValue, versions=_V0, flexible=0):
    initializing_topics: list[TopicPartitionsInfo] = []
    initialized_topics: list[TopicPartitionsInfo] = []
    deleting_topics: list[TopicInfo] = []


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """The key and value of a record; a value of None is a tombstone."""
    match record:
        case ShareMemberRecord():
            return member_key(MEMBER, *record[:2]), written(_member_value, record.value)
        case ShareEpochRecord():
            return group_key(GROUP, record.group_id), written(_epoch_value, record.value)
        case ShareTargetEpochRecord():
            return group_key(TARGET, record.group_id), written(target_epoch_value, record.value)
        case ShareTargetRecord():
            return member_key(TARGET_MEMBER, *record[:2]), written(target_value, record.value)
        case ShareCurrentRecord():
            return member_key(CURRENT, *record[:2]), written(_current_value, record.value)
        case SharePartitionsRecord():
            return group_key(PARTITIONS, record.group_id), written(_partitions_value, record.value)


def _member_value(member: ShareMember) -> ShareGroupMemberMetadataValue:
    return ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )


def _epoch_value(value: GroupEpoch) -> ShareGroupMetadataValue:
    return ShareGroupMetadataValue(epoch=value.epoch, metadata_hash=value.metadata_hash)


def _current_value(member: ShareMember) -> ShareGroupCurrentMemberAssignmentValue:
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        assigned_partitions=topic_partitions(member.assigned),
    )


def _partitions_value(value: GroupPartitions) -> ShareGroupStatePartitionMetadataValue:
    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=_topics(value.initializing),
        initialized_topics=_topics(value.initialized),
        deleting_topics=[TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in value.deleting.items()],
    )


def _topics(topics: Mapping[bytes, Begun]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
        for topic_id, topic in topics.items()
    ]


def decode(key: bytes, value: bytes | None) -> ShareRecord:
    """The record behind a key, whose first two bytes are in KEY_VERSIONS, and its value.

    Raises DecodeError and ValueError.
    """
    kind = int.from_bytes(key[:2], "big")
    if kind in (GROUP, TARGET, PARTITIONS):
        group_id = GroupKey.decode(key, 0).group_id
        if kind == GROUP:
            epoch = read_value(ShareGroupMetadataValue, value)
            return ShareEpochRecord(group_id, None if epoch is None else GroupEpoch(epoch.epoch, epoch.metadata_hash))
        if kind == TARGET:
            target = read_value(ConsumerGroupTargetAssignmentMetadataValue, value)
            return ShareTargetEpochRecord(group_id, read_target_epoch(target))
        begun = read_value(ShareGroupStatePartitionMetadataValue, value)
        return SharePartitionsRecord(group_id, None if begun is None else _read_partitions(begun))
    whole = MemberKey.decode(key, 0)
    if kind == MEMBER:
        member = read_value(ShareGroupMemberMetadataValue, value)
        return ShareMemberRecord(
            whole.group_id, whole.member_id, None if member is None else _read_member(whole.member_id, member)
        )
    if kind == TARGET_MEMBER:
        assignment = read_target(read_value(ConsumerGroupTargetAssignmentMemberValue, value))
        return ShareTargetRecord(whole.group_id, whole.member_id, assignment)
    current = read_value(ShareGroupCurrentMemberAssignmentValue, value)
    return ShareCurrentRecord(
        whole.group_id, whole.member_id, None if current is None else _read_current(whole.member_id, current)
    )


def _read_member(member_id: str, read: ShareGroupMemberMetadataValue) -> ShareMember:
    return ShareMember(
        member_id=member_id,
        rack_id=read.rack_id,
        client_id=read.client_id,
        client_host=read.client_host,
        topics=frozenset(read.subscribed_topic_names),
    )


def _read_current(member_id: str, read: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
    return ShareMember(
        member_id=member_id,
        epoch=read.member_epoch,
        previous_epoch=read.previous_member_epoch,
        assigned={topic.topic_id: frozenset(topic.partitions) for topic in read.assigned_partitions},
    )


def _read_partitions(read: ShareGroupStatePartitionMetadataValue) -> GroupPartitions:
    return GroupPartitions(
        _read_topics(read.initializing_topics),
        _read_topics(read.initialized_topics),
        {topic.topic_id: topic.topic_name for topic in read.deleting_topics},
    )


def _read_topics(topics: Iterable[TopicPartitionsInfo]) -> dict[bytes, Begun]:
    return {topic.topic_id: Begun(topic.topic_name, frozenset(topic.partitions)) for topic in topics}
