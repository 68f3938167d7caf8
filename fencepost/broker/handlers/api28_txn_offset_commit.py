"""TxnOffsetCommit (28): offsets that count once the transaction commits; the response waits until they are durable.

v0-6 are served. v3 brings member, generation and instance (KIP-447), v4 knows TRANSACTION_ABORTABLE. v5 adds the
group's partition to the transaction implicitly (KIP-890, T16); before v5 AddOffsetsToTxn adds it, and this handler
verifies it. v6 names topics by id and returns GROUP_ID_NOT_FOUND for an unknown group. STALE_MEMBER_EPOCH is for
groups of KIP-848 (T5).
"""

from collections.abc import Collection, Sequence

from fencepost.broker.handlers.api08_offset_commit import unusable_topic
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics
from fencepost.coordinator.group.commit import Commit
from fencepost.coordinator.group.offsets import OffsetCommitItem
from fencepost.coordinator.ports import ProducerTag, coordinator_error
from fencepost.coordinator.txn.causes import EXPLAINED
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from fencepost.protocol.topics import GROUP_TOPIC, TopicPartition

LOADING_SINCE = 2
ABORTABLE_SINCE = 4
IMPLICIT_ADD_SINCE = 5
TOPIC_ID_SINCE = 6
NO_SEQUENCE = 0
"""Offsets have no sequence numbers."""


async def handle(node: Broker, request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    """Store the offsets as pending, and return an error code for each partition."""
    version = context.api_version
    error = ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID
    names = [
        node.metadata.topic_name(topic.topic_id) if version >= TOPIC_ID_SINCE else topic.name
        for topic in request.topics
    ]
    refused = denied_topics(node, context, AclOperation.READ, names)
    items = tuple(
        OffsetCommitItem(
            TopicPartition(name, partition.partition_index),
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata,
            topic_id=topic.topic_id if version >= TOPIC_ID_SINCE else None,
        )
        for name, topic in zip(names, request.topics, strict=True)
        if name is not None
        for partition in topic.partitions
        if not _unusable(node, name, partition.partition_index, refused)
    )
    if items:
        error = error or await _check_transaction(node, request, context)
    errors = [error] * len(items) if error else await _commit(node, request, items, context)
    remaining = iter(errors)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=_unusable(node, name, partition.partition_index, refused)
                        or _visible(next(remaining), version),
                    )
                    for partition in topic.partitions
                ],
            )
            for name, topic in zip(names, request.topics, strict=True)
        ]
    )


def _unusable(node: Broker, name: str | None, number: int, refused: Collection[str]) -> ErrorCode:
    """Why no offset of this partition can be committed, whatever the transaction and the group say."""
    if error := unusable_topic(name, refused):
        return error
    exists = node.metadata.exists(TopicPartition(name or "", number))
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _command(request: TxnOffsetCommitRequest, items: tuple[OffsetCommitItem, ...], version: int) -> Commit:
    return Commit(
        request.group_id,
        items,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        unknown_group=ErrorCode.GROUP_ID_NOT_FOUND if version >= TOPIC_ID_SINCE else ErrorCode.ILLEGAL_GENERATION,
        producer=ProducerTag(request.producer_id, request.producer_epoch),
    )


async def _commit(
    node: Broker, request: TxnOffsetCommitRequest, items: tuple[OffsetCommitItem, ...], context: RequestContext
) -> Sequence[ErrorCode]:
    """Store the offsets. If the group's partition rejects the producer, store the reason."""
    errors = await node.groups.positions.commit(_command(request, items, context.api_version))
    for code in EXPLAINED.intersection(errors):
        name, shown = request.transactional_id, (request.producer_id, request.producer_epoch)
        reason = f"the partition of group {request.group_id!r} knows a newer epoch of the producer"
        node.transactions.history.refused_write(
            name, node.transactions.ids.state_of(name), shown, code, reason, context
        )
    return errors


async def _check_transaction(node: Broker, request: TxnOffsetCommitRequest, context: RequestContext) -> ErrorCode:
    """Add the group's partition to the transaction (v5), or verify that it was added.

    No other task runs between this result and the append: there is no checkpoint between them (row T16). If another
    broker coordinates the transaction, its marker may have come meanwhile: then the guard is gone, and the client asks
    again.
    """
    partition = TopicPartition(GROUP_TOPIC, node.groups.group_partition(request.group_id))
    producer = request.producer_id, request.producer_epoch
    log = node.partition(partition) if node.transactions.is_remote(request.transactional_id) else None
    guard = None if log is None else log.verify(*producer, NO_SEQUENCE, 0)
    results = await node.transactions.ensure_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        (partition,),
        add=context.api_version >= IMPLICIT_ADD_SINCE,
        knows_abortable=context.api_version >= ABORTABLE_SINCE,
        caller=context,
    )
    if log is not None and not results[partition]:
        states = log.producers
        if not states.has_open(*producer) and (guard is None or states.guard_of(request.producer_id) is not guard):
            return ErrorCode.CONCURRENT_TRANSACTIONS
    return coordinator_error(results[partition])


def _visible(error: ErrorCode, version: int) -> ErrorCode:
    """`error` as clients of this version may see it; the oldest ones crash on COORDINATOR_LOAD_IN_PROGRESS."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
