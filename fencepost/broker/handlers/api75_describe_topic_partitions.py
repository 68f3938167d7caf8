"""DescribeTopicPartitions (75): the partitions of topics, in pages (KIP-966)."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import authorized_operations, denied_topics
from fencepost.coordinator.metadata.image import TopicImage
from fencepost.coordinator.metadata.topic_names import topic_name_problem
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(
    node: Broker, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """One page: topics by name, from the cursor up to the limit of partitions.

    A topic that the client may not see is refused if the request names it, and left out of a list of all topics.
    """
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return _refused(asked)
    first = cursor.topic_name if cursor is not None else ""
    names = sorted(name for name in asked or node.metadata.image.topics_by_name if name >= first)
    hidden = denied_topics(node, context, AclOperation.DESCRIBE, names)
    response = _page_of_topics(node, request, [name for name in names if name not in hidden])
    for topic in response.topics:
        topic.topic_authorized_operations = authorized_operations(
            node, context, AclResourceType.TOPIC, topic.name or ""
        )
    if asked:
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refused = [DescribeTopicPartitionsResponseTopic(error_code=error, name=name) for name in sorted(hidden)]
        response.topics += refused
    return response


def _page_of_topics(
    node: Broker, request: DescribeTopicPartitionsRequest, names: list[str]
) -> DescribeTopicPartitionsResponse:
    cursor, by_name = request.cursor, node.metadata.image.topics_by_name
    left = max(1, min(node.config.max_request_partition_size_limit, request.response_partition_limit))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if left == 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=0)
            )
        topic = by_name.get(name)
        if topic is None:
            topics.append(_missing(name))
            continue
        start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        stop = min(topic.partitions, start + left)
        topics.append(_page(node.place.with_leaders(topic), start, stop))
        left -= max(0, stop - start)
        if stop < topic.partitions:
            next_cursor = Cursor(topic_name=name, partition_index=stop)
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=None)


def _page(topic: TopicImage, start: int, stop: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=topic.assignment[index].leader,
                leader_epoch=topic.assignment[index].leader_epoch,
                replica_nodes=list(topic.assignment[index].replicas),
                isr_nodes=list(topic.assignment[index].isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for index in range(start, stop)
        ],
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    bad = topic_name_problem(name) is not None
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.INVALID_TOPIC_EXCEPTION if bad else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name
    )


def _refused(asked: set[str]) -> DescribeTopicPartitionsResponse:
    """The cursor does not match the request. The response has no error code, so each topic carries it, as in Kafka."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)
            for name in sorted(asked)
        ],
        next_cursor=None,
    )
