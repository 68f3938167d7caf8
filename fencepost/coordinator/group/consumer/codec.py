"""The bytes of a consumer group's records: Kafka's keys 3 to 8 and 16, whose values are version 0 and flexible."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
from fencepost.protocol.schema import (
    Array,
    Bytes,
    Field,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Since,
    String,
    Struct,
    Uuid,
)

if TYPE_CHECKING:
    from fencepost.protocol.schema import LooseValue

GROUP, TOPICS, MEMBER, TARGET, TARGET_MEMBER, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16
KEY_VERSIONS = frozenset({GROUP, TOPICS, MEMBER, TARGET, TARGET_MEMBER, CURRENT, REGEX})
_V0 = (0, 0)

_GroupKey = Message("GroupKey", _V0, None, "kind" / Int16, "group_id" / String)
_MemberKey = Message("MemberKey", _V0, None, "kind" / Int16, "group_id" / String, "member_id" / String)

_GroupValue = Message(
    "ConsumerGroupMetadataValue", _V0, 0, "epoch" / Int32, "metadata_hash" / Since(0, Int64, default=0, tag=0)
)
_ClassicProtocol = Struct("ClassicProtocol", "name" / String, "metadata" / Bytes)
_ClassicMember = Message(
    "ClassicMemberMetadata", _V0, 0, "session_timeout_ms" / Int32, "supported_protocols" / Array(_ClassicProtocol)
)
_CLASSIC_TAG = 0
_NO_CLASSIC_MEMBER, _CLASSIC_MEMBER = b"\0", b"\1"
"""The first byte of the tagged field. Kafka takes a missing field for a classic member, so it is always written."""
_MemberValue = Message(
    "ConsumerGroupMemberMetadataValue",
    _V0,
    0,
    "instance_id" / Field(String, default=None, nullable=0),
    "rack_id" / Field(String, default=None, nullable=0),
    "client_id" / String,
    "client_host" / String,
    "subscribed_topic_names" / Array(String),
    "subscribed_topic_regex" / Field(String, default=None, nullable=0),
    "rebalance_timeout_ms" / Field(Int32, default=-1),
    "server_assignor" / Field(String, default=None, nullable=0),
)
_TargetValue = Message(
    "ConsumerGroupTargetAssignmentMetadataValue",
    _V0,
    0,
    "assignment_epoch" / Int32,
    "assignment_timestamp" / Since(0, Int64, default=0, tag=0),
)
_TargetTopic = Struct("TopicPartition", "topic_id" / Uuid, "partitions" / Array(Int32))
_TargetMemberValue = Message(
    "ConsumerGroupTargetAssignmentMemberValue", _V0, 0, "topic_partitions" / Array(_TargetTopic)
)
_OwnedTopic = Struct(
    "TopicPartitions",
    "topic_id" / Uuid,
    "partitions" / Array(Int32),
    "assignment_epochs" / Since(0, Array(Int32), default=None, nullable=0, tag=0),
)
_CurrentValue = Message(
    "ConsumerGroupCurrentMemberAssignmentValue",
    _V0,
    0,
    "member_epoch" / Int32,
    "previous_member_epoch" / Int32,
    "state" / Int8,
    "assigned_partitions" / Array(_OwnedTopic),
    "partitions_pending_revocation" / Array(_OwnedTopic),
)
_RegexValue = Message(
    "ConsumerGroupRegularExpressionValue", _V0, 0, "topics" / Array(String), "version" / Int64, "timestamp" / Int64
)


def encode(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """The key and value of a record; a value of None is a tombstone."""
    match record:
        case MemberRecord():
            return _member_key(MEMBER, *record[:2]), None if record.value is None else _member_value(record.value)
        case EpochRecord():
            return _group_key(GROUP, record.group_id), _value(_GroupValue, _epoch_fields, record.value)
        case TopicsRecord():
            assert not record.there, "the topics of a group are a hash in its epoch record since Kafka 4.1"
            return _group_key(TOPICS, record.group_id), None
        case TargetEpochRecord():
            return _group_key(TARGET, record.group_id), _value(_TargetValue, _target_fields, record.value)
        case TargetRecord():
            return _member_key(TARGET_MEMBER, *record[:2]), _value(_TargetMemberValue, _target_topics, record.value)
        case CurrentRecord():
            return _member_key(CURRENT, *record[:2]), _value(_CurrentValue, _current_fields, record.value)
        case RegexRecord():
            return _member_key(REGEX, *record[:2]), _value(_RegexValue, _regex_fields, record.value)


def _group_key(kind: int, group_id: str) -> bytes:
    return _GroupKey.encode(_GroupKey(kind=kind, group_id=group_id), 0)


def _member_key(kind: int, group_id: str, member_id: str) -> bytes:
    return _MemberKey.encode(_MemberKey(kind=kind, group_id=group_id, member_id=member_id), 0)


def _value(message: "type[LooseValue]", fields: Callable[[Any], dict[str, Any]], value: Any) -> bytes | None:
    return None if value is None else b"\0\0" + message.encode(message(**fields(value)), 0)


def _epoch_fields(value: GroupEpoch) -> dict[str, Any]:
    return {"epoch": value.epoch, "metadata_hash": value.metadata_hash}


def _member_value(member: ConsumerMember) -> bytes:
    value = _MemberValue(
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
        protocols = [_ClassicProtocol(name=name, metadata=data) for name, data in member.classic.protocols]
        side = _ClassicMember(session_timeout_ms=member.classic.session_timeout_ms, supported_protocols=protocols)
        classic = _CLASSIC_MEMBER + _ClassicMember.encode(side, 0)
    value.unknown_tags = {_CLASSIC_TAG: classic}
    return b"\0\0" + _MemberValue.encode(value, 0)


def _target_fields(value: TargetEpoch) -> dict[str, Any]:
    return {"assignment_epoch": value.epoch, "assignment_timestamp": value.timestamp_ms}


def _target_topics(assignment: Assignment) -> dict[str, Any]:
    topics = [
        _TargetTopic(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in assignment.items()
    ]
    return {"topic_partitions": topics}


def _current_fields(member: ConsumerMember) -> dict[str, Any]:
    return {
        "member_epoch": member.epoch,
        "previous_member_epoch": member.previous_epoch,
        "state": int(member.state),
        "assigned_partitions": _owned_topics(member.assigned),
        "partitions_pending_revocation": _owned_topics(member.revoking),
    }


def _owned_topics(owned: Owned) -> list[Any]:
    return [
        _OwnedTopic(topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values()))
        for topic_id, partitions in owned.items()
    ]


def _regex_fields(value: ResolvedRegex) -> dict[str, Any]:
    return {"topics": sorted(value.topics), "version": value.version, "timestamp": value.timestamp_ms}


def decode(key: bytes, value: bytes | None) -> ConsumerRecord:
    """The record behind a key, whose first two bytes are in KEY_VERSIONS, and its value.

    Raises DecodeError and ValueError.
    """
    kind = int.from_bytes(key[:2], "big")
    if kind in (GROUP, TOPICS, TARGET):
        group_id = _GroupKey.decode(key, 0).group_id
        if kind == TOPICS:
            return TopicsRecord(group_id, value is not None)
        if kind == GROUP:
            read = _body(_GroupValue, value)
            return EpochRecord(group_id, None if read is None else GroupEpoch(read.epoch, read.metadata_hash))
        read = _body(_TargetValue, value)
        target = None if read is None else TargetEpoch(read.assignment_epoch, read.assignment_timestamp)
        return TargetEpochRecord(group_id, target)
    whole = _MemberKey.decode(key, 0)
    if kind == MEMBER:
        member = _read_member(whole.member_id, _body(_MemberValue, value))
        return MemberRecord(whole.group_id, whole.member_id, member)
    if kind == TARGET_MEMBER:
        return TargetRecord(whole.group_id, whole.member_id, _read_target(_body(_TargetMemberValue, value)))
    if kind == CURRENT:
        return CurrentRecord(
            whole.group_id, whole.member_id, _read_current(whole.member_id, _body(_CurrentValue, value))
        )
    read = _body(_RegexValue, value)
    resolved = None if read is None else ResolvedRegex(frozenset(read.topics), read.version, read.timestamp)
    return RegexRecord(whole.group_id, whole.member_id, resolved)


def _body(message: "type[LooseValue]", value: bytes | None) -> Any:
    if value is None:
        return None
    if value[:2] != b"\0\0":
        raise ValueError(f"{message.__name__} has the unknown version {value[:2]!r}")
    return message.decode(value, 0, 2)


def _read_member(member_id: str, read: Any) -> ConsumerMember | None:
    if read is None:
        return None
    tagged = (read.unknown_tags or {}).get(_CLASSIC_TAG, _NO_CLASSIC_MEMBER)
    classic = None
    if tagged[:1] == _CLASSIC_MEMBER:
        side = _ClassicMember.decode(tagged, 0, 1)
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


def _read_target(read: Any) -> Assignment | None:
    if read is None:
        return None
    return {topic.topic_id: frozenset(topic.partitions) for topic in read.topic_partitions}


def _read_current(member_id: str, read: Any) -> ConsumerMember | None:
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


def _read_owned(topics: Any, member_epoch: int) -> Owned:
    """Partitions with their epochs; records from before Kafka 4.3 have none, so the member's epoch is taken."""
    owned = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned
