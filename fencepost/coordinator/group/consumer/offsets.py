"""Which senders may commit and fetch offsets of a consumer group (rows G4, T5; KIP-848, KIP-1251)."""

from collections.abc import Callable

from fencepost.coordinator.group.consumer.group import ConsumerGroup, tombstones
from fencepost.coordinator.group.consumer.member import ConsumerMember
from fencepost.coordinator.group.offsets import OffsetStore
from fencepost.coordinator.group.records import GroupRecord, OffsetRemoved
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

TopicId = Callable[[str], bytes | None]


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    *,
    transactional: bool,
    knows_epochs: bool,
    partitions: tuple[TopicPartition, ...],
    topic_id: TopicId,
) -> ErrorCode:
    """Whether this sender may commit offsets of these partitions; one error for all.

    `knows_epochs`: OffsetCommit from v9 on, TxnOffsetCommit from v6 on.

    The epoch must be the member's, or an older one in which it already had all the partitions. So a commit that was on
    its way when the epoch was raised is accepted, and that of a zombie is not.
    """
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    if transactional and epoch < 0 and not member_id and instance_id is None:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and member.classic is None and not knows_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.epoch:
        return ErrorCode.NONE
    stale = ErrorCode.STALE_MEMBER_EPOCH
    if member.classic is not None or not knows_epochs:
        stale = ErrorCode.ILLEGAL_GENERATION
    holds = epoch < member.epoch and all(_held_since(member, one, topic_id) <= epoch for one in partitions)
    return ErrorCode.NONE if holds else stale


def _held_since(member: ConsumerMember, partition: TopicPartition, topic_id: TopicId) -> float:
    """The epoch in which the member received the partition; infinite if it does not have it."""
    found = topic_id(partition.topic)
    since = None if found is None else member.assigned_in(found, partition.partition)
    return float("inf") if since is None else since


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Whether this sender may fetch the group's offsets; a request without a member id may (OffsetFetch v9+)."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def expired(group: ConsumerGroup, store: OffsetStore, retention_ms: int, now_ms: int) -> list[GroupRecord]:
    """The tombstones of expired offsets, and of a group without members and other offsets (row G7).

    The retention counts from the commit; an offset of a topic that a member subscribes to does not expire.
    """
    pending = store.pending(group.group_id)
    records: list[GroupRecord] = []
    kept = store.has_pending(group.group_id)
    for partition, value in store.committed(group.group_id):
        over_at_ms = value.expire_timestamp_ms if value.expire_timestamp_ms >= 0 else None
        over_at_ms = value.commit_timestamp_ms + retention_ms if over_at_ms is None else over_at_ms
        if partition.topic in group.topics or partition in pending or now_ms < over_at_ms:
            kept = True
        else:
            records.append(OffsetRemoved(group.group_id, partition))
    if not kept and not group.members:
        records += tombstones(group)
    return records
