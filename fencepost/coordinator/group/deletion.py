"""OffsetDelete as one decision: remove committed offsets of a group that continues to exist (row G7; KIP-496)."""

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.group.records import GroupRecord, OffsetRemoved
from fencepost.coordinator.group.retention import CONSUMER, subscription_topics
from fencepost.coordinator.group.shard_state import GroupShardState
from fencepost.coordinator.group.state import Active, Dead, Group, group_members
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class DeletedOffsets(NamedTuple):
    """The answer to OffsetDelete: one error for the whole, else one per partition, in order."""

    error: ErrorCode
    errors: tuple[ErrorCode, ...] = ()


def decide_delete(
    state: GroupShardState, group_id: str, partitions: Sequence[TopicPartition]
) -> Decision[GroupRecord, DeletedOffsets, None]:
    """Remove the offsets of `partitions`, except of topics that members subscribe to (GROUP_SUBSCRIBED_TO_TOPIC).

    An offset that is pending in an open transaction stays, and so does the one it would replace: the client receives
    UNSTABLE_OFFSET_COMMIT and retries after the transaction. (Kafka removes the pending offset from the transaction,
    which then commits its output without it.)
    """
    group = state.group(group_id)
    consumers = state.consumers.get(group_id)
    if consumers is None and isinstance(group, Dead):
        return Decision(DeletedOffsets(ErrorCode.GROUP_ID_NOT_FOUND))
    if isinstance(group, Active) and group.protocol_type != CONSUMER:
        return Decision(DeletedOffsets(ErrorCode.NON_EMPTY_GROUP))
    stored = {partition for partition, _ in state.offsets.committed(group_id)}
    pending = state.offsets.pending(group_id)
    errors: list[ErrorCode] = []
    removals: dict[TopicPartition, OffsetRemoved] = {}
    for partition in partitions:
        error = ErrorCode.NONE
        if partition.topic in consumers.topics if consumers is not None else _is_read(group, partition.topic):
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif partition in pending:
            error = ErrorCode.UNSTABLE_OFFSET_COMMIT
        elif partition in stored:
            removals[partition] = OffsetRemoved(group_id, partition)
        errors.append(error)
    return Decision(DeletedOffsets(ErrorCode.NONE, tuple(errors)), tuple(removals.values()))


def _is_read(group: Group, topic: str) -> bool:
    """Whether a member subscribes to the topic, or has a subscription that cannot be decoded.

    In a rebalance the protocol is not chosen yet: the subscriptions for all protocols of a member count.
    """
    for member in group_members(group).values():
        for _, metadata in member.protocols:
            topics = subscription_topics(metadata)
            if topics is None or topic in topics:
                return True
    return False
