"""The bytes of a consumer group's records: Kafka's keys 3 to 8 and 16, whose values are version 0 and flexible."""

from collections.abc import Callable
from typing import TypeVar

from fencepost.coordinator.group.consumer.member import Assignment, ClassicSide, ConsumerMember, MemberState, Owned
from fencepost.coordinator.group.consumer.records import (
    ConsumerRecord,
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    MemberRecord,
    RegexRecord,
    ResolvedRegex,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
    TopicsRecord,
)
from fencepost.protocol.schema import Bytes, Int8, Int16, Int32, Int64, MessageValue, String, Uuid, Value, field

GROUP, TOPICS, MEMBER, TARGET, TARGET_MEMBER, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16
KEY_VERSIONS = frozenset({GROUP, TOPICS, MEMBER, TARGET, TARGET_MEMBER, CURRENT, REGEX})
_V0 = (0, 0)
T = TypeVar("T")
M = TypeVar("M", bound=MessageValue)


class GroupKey(MessageValue, versions=_V0):
    kind: Int16 = 0
    group_id: String = ""


class MemberKey(MessageValue, versions=_V0):
    kind: Int16 = 0
    group_id: String = ""
    member_id: String = ""


class ConsumerGroupMetadataValue(MessageValue, versions=_V0, flexible=0):
    epoch: Int32 = 0
    metadata_hash: Int64 = field(tag=0)


class ClassicProtocol(Value):
    name: String = ""
    metadata: Bytes = b""


class ClassicMemberMetadata(MessageValue, versions=_V0, flexible=0):
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = []


_CLASSIC_TAG = 0
_NO_CLASSIC_MEMBER, _CLASSIC_MEMBER = b"\0", b"\1"
"""The first byte of the tagged field. Kafka takes a missing field for a classic member, so it is always written."""


class ConsumerGroupMemberMetadataValue(MessageValue, versions=_V0, flexible=0):
    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    subscribed_topic_regex: String | None = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None = None


class ConsumerGroupTargetAssignmentMetadataValue(MessageValue, versions=_V0, flexible=0):
    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = field(tag=0)


class TopicPartition(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[Int32] = []


class ConsumerGroupTargetAssignmentMemberValue(MessageValue, versions=_V0, flexible=0):
    topic_partitions: list[TopicPartition] = []


class TopicPartitions(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[Int32] = []
    assignment_epochs: list[Int32] | None = field(default=None, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(MessageValue, versions=_V0, flexible=0):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartitions] = []
    partitions_pending_revocation: list[TopicPartitions] = []


class ConsumerGroupRegularExpressionValue(MessageValue, versions=_V0, flexible=0):
    topics: list[String] = []
    version: Int64 = 0
    timestamp: Int64 = 0


def encode(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """The key and value of a record; a value of None is a tombstone."""
    match record:
        case MemberRecord():
            return member_key(MEMBER, *record[:2]), written(_member_value, record.value)
        case EpochRecord():
            return group_key(GROUP, record.group_id), written(_epoch_value, record.value)
        case TopicsRecord():
            assert not record.there, "the topics of a group are a hash in its epoch record since Kafka 4.1"
            return group_key(TOPICS, record.group_id), None
        case TargetEpochRecord():
            return group_key(TARGET, record.group_id), written(target_epoch_value, record.value)
        case TargetRecord():
            return member_key(TARGET_MEMBER, *record[:2]), written(target_value, record.value)
        case CurrentRecord():
            return member_key(CURRENT, *record[:2]), written(_current_value, record.value)
        case RegexRecord():
            return member_key(REGEX, *record[:2]), written(_regex_value, record.value)


def group_key(kind: int, group_id: str) -> bytes:
    """The key of a record about a whole group."""
    return GroupKey.encode(GroupKey(kind=kind, group_id=group_id), 0)


def member_key(kind: int, group_id: str, member_id: str) -> bytes:
    """The key of a record about a member, or about a regular expression."""
    return MemberKey.encode(MemberKey(kind=kind, group_id=group_id, member_id=member_id), 0)


def written(make: Callable[[T], MessageValue], value: T | None) -> bytes | None:
    """The bytes of a value, with its version in front; None for a tombstone."""
    if value is None:
        return None
    message = make(value)
    return b"\0\0" + message.encode(message, 0)


def _epoch_value(value: GroupEpoch) -> ConsumerGroupMetadataValue:
    return ConsumerGroupMetadataValue(epoch=value.epoch, metadata_hash=value.metadata_hash)


def _member_value(member: ConsumerMember) -> ConsumerGroupMemberMetadataValue:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
    )
    classic = _NO_CLASSIC_MEMBER
    if member.classic is not None:
        protocols = [ClassicProtocol(name=name, metadata=data) for name, data in member.classic.protocols]
        side = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms, supported_protocols=protocols
        )
        classic = _CLASSIC_MEMBER + ClassicMemberMetadata.encode(side, 0)
    value.unknown_tags = {_CLASSIC_TAG: classic}
    return value


def target_epoch_value(value: TargetEpoch) -> ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of a target assignment; a share group's record has the same fields."""
    return ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=value.epoch, assignment_timestamp=value.timestamp_ms
    )


def target_value(assignment: Assignment) -> ConsumerGroupTargetAssignmentMemberValue:
    """The target of a member; a share group's record has the same fields."""
    return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topic_partitions(assignment))


def topic_partitions(assignment: Assignment) -> list[TopicPartition]:
    """An assignment as the records of targets have it."""
    return [
        TopicPartition(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in assignment.items()
    ]


def _current_value(member: ConsumerMember) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_owned_topics(member.assigned),
        partitions_pending_revocation=_owned_topics(member.revoking),
    )


def _owned_topics(owned: Owned) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values()))
        for topic_id, partitions in owned.items()
    ]


def _regex_value(value: ResolvedRegex) -> ConsumerGroupRegularExpressionValue:
    return ConsumerGroupRegularExpressionValue(
        topics=sorted(value.topics), version=value.version, timestamp=value.timestamp_ms
    )


def decode(key: bytes, value: bytes | None) -> ConsumerRecord:
    """The record behind a key, whose first two bytes are in KEY_VERSIONS, and its value.

    Raises DecodeError and ValueError.
    """
    kind = int.from_bytes(key[:2], "big")
    if kind in (GROUP, TOPICS, TARGET):
        group_id = GroupKey.decode(key, 0).group_id
        if kind == TOPICS:
            return TopicsRecord(group_id, value is not None)
        if kind == GROUP:
            epoch = read_value(ConsumerGroupMetadataValue, value)
            return EpochRecord(group_id, None if epoch is None else GroupEpoch(epoch.epoch, epoch.metadata_hash))
        target = read_value(ConsumerGroupTargetAssignmentMetadataValue, value)
        return TargetEpochRecord(group_id, read_target_epoch(target))
    whole = MemberKey.decode(key, 0)
    if kind == MEMBER:
        member = _read_member(whole.member_id, read_value(ConsumerGroupMemberMetadataValue, value))
        return MemberRecord(whole.group_id, whole.member_id, member)
    if kind == TARGET_MEMBER:
        return TargetRecord(
            whole.group_id, whole.member_id, read_target(read_value(ConsumerGroupTargetAssignmentMemberValue, value))
        )
    if kind == CURRENT:
        return CurrentRecord(
            whole.group_id,
            whole.member_id,
            _read_current(whole.member_id, read_value(ConsumerGroupCurrentMemberAssignmentValue, value)),
        )
    regex = read_value(ConsumerGroupRegularExpressionValue, value)
    resolved = None if regex is None else ResolvedRegex(frozenset(regex.topics), regex.version, regex.timestamp)
    return RegexRecord(whole.group_id, whole.member_id, resolved)


def read_value(message: type[M], value: bytes | None) -> M | None:
    """The value, which must be of version 0; None for a tombstone. Raises DecodeError and ValueError."""
    if value is None:
        return None
    if value[:2] != b"\0\0":
        raise ValueError(f"{message.__name__} has the unknown version {value[:2]!r}")
    return message.decode(value, 0, 2)


def _read_member(member_id: str, read: ConsumerGroupMemberMetadataValue | None) -> ConsumerMember | None:
    if read is None:
        return None
    tagged = (read.unknown_tags or {}).get(_CLASSIC_TAG, _NO_CLASSIC_MEMBER)
    classic = None
    if tagged[:1] == _CLASSIC_MEMBER:
        side = ClassicMemberMetadata.decode(tagged, 0, 1)
        protocols = tuple((one.name, one.metadata) for one in side.supported_protocols)
        classic = ClassicSide(side.session_timeout_ms, protocols)
    return ConsumerMember(
        member_id=member_id,
        instance_id=read.instance_id,
        rack_id=read.rack_id,
        client_id=read.client_id,
        client_host=read.client_host,
        topics=frozenset(read.subscribed_topic_names),
        regex=read.subscribed_topic_regex,
        rebalance_timeout_ms=read.rebalance_timeout_ms,
        assignor=read.server_assignor,
        classic=classic,
    )


def read_target_epoch(read: ConsumerGroupTargetAssignmentMetadataValue | None) -> TargetEpoch | None:
    """The epoch of a target assignment; None for a tombstone. A share group's record has the same fields."""
    return None if read is None else TargetEpoch(read.assignment_epoch, read.assignment_timestamp)


def read_target(read: ConsumerGroupTargetAssignmentMemberValue | None) -> Assignment | None:
    """The target of a member; None for a tombstone."""
    if read is None:
        return None
    return {topic.topic_id: frozenset(topic.partitions) for topic in read.topic_partitions}


def _read_current(member_id: str, read: ConsumerGroupCurrentMemberAssignmentValue | None) -> ConsumerMember | None:
    if read is None:
        return None
    known = read.state in (MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS)
    return ConsumerMember(
        member_id=member_id,
        epoch=read.member_epoch,
        previous_epoch=read.previous_member_epoch,
        state=MemberState(read.state) if known else MemberState.UNKNOWN,
        assigned=_read_owned(read.assigned_partitions, read.member_epoch),
        revoking=_read_owned(read.partitions_pending_revocation, read.member_epoch),
    )


def _read_owned(topics: list[TopicPartitions], member_epoch: int) -> Owned:
    """Partitions with their epochs; records from before Kafka 4.3 have none, so the member's epoch is taken."""
    owned = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned
