"""OffsetForLeaderEpoch (23): the end offset of a leader epoch, for readers that suspect truncation (KIP-320).

v0-4 are served; librdkafka sends exactly v2. v1 also returns the epoch, v2 carries the reader's own leader epoch.
"""

from functools import partial

from fencepost.broker.durable_ends import when_durable
from fencepost.broker.fetch.reads import leader_epoch_error
from fencepost.broker.log.reading import epoch_end_offset
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Reply
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics, is_allowed
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from fencepost.protocol.topics import TopicPartition


def handle(node: Broker, request: OffsetForLeaderEpochRequest, context: RequestContext) -> Reply:
    """Return the end of the requested epoch, or of the largest epoch before it, once each log's end is durable."""
    asked = [TopicPartition(topic.topic, ask.partition) for topic in request.topics for ask in topic.partitions]
    return when_durable(node, map(node.partition, asked), partial(_answer_all, node, request, context))


def _answer_all(
    node: Broker, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    refused: frozenset[str] = frozenset()
    if not is_allowed(node, context, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, log_denial=False):
        refused = denied_topics(node, context, AclOperation.DESCRIBE, (topic.topic for topic in request.topics))
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=ask.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    if topic.topic in refused
                    else _answer(node, TopicPartition(topic.topic, ask.partition), ask)
                    for ask in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(node: Broker, tp: TopicPartition, ask: OffsetForLeaderPartition) -> EpochEndOffset:
    log = node.partition(tp)
    if log is None:
        return EpochEndOffset(partition=tp.partition, error_code=node.absence(tp))
    error = leader_epoch_error(ask.current_leader_epoch, log)
    if error:
        return EpochEndOffset(partition=tp.partition, error_code=error)
    epoch, end_offset = epoch_end_offset(log, ask.leader_epoch)
    return EpochEndOffset(partition=tp.partition, leader_epoch=epoch, end_offset=end_offset)
