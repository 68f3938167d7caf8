"""Metadata (3): the brokers, and the topics with their partitions.

v0 lists all topics for an empty list, v1+ for null; v4 has the flag for auto-creation; v5 offline replicas; v7 leader
epochs; v8 authorized operations (those of the cluster up to v10 only); v10 topic ids in the response, v12 in the
request.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from fencepost.broker.metadata.answers import partition_value
from fencepost.broker.metadata.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.metering import limit_mutations
from fencepost.broker.network.reply import Encoded
from fencepost.broker.ports import HasConfig, HasMetadata, HasMetadataAnswers
from fencepost.coordinator.metadata.commands import NO_ID
from fencepost.coordinator.metadata.topic_names import is_internal, topic_name_problem
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from fencepost.coordinator.metadata.image import TopicImage
    from fencepost.coordinator.metadata.ports import MutationQuota

TOPIC_IDS_SINCE = 12
AUTO_CREATION_FLAG_SINCE = 4


class _Broker(HasConfig, HasMetadata, HasMetadataAnswers, Protocol):
    """What Metadata needs."""


async def handle(node: _Broker, request: MetadataRequest, context: RequestContext) -> MetadataResponse | Encoded:
    """Describe the cluster and the requested topics. Creates missing topics if the client and the broker allow it."""
    version = context.api_version
    asked = None if version == 0 and not request.topics else request.topics
    topics: list[MetadataResponseTopic] = []
    if asked is None:
        pass  # all topics: their encoded form is cached
    elif version < TOPIC_IDS_SINCE and any(entry.name is None or entry.topic_id != NO_ID for entry in asked):
        topics = [
            MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=entry.name or "", topic_id=entry.topic_id)
            for entry in asked
        ]
    else:
        may_create = version < AUTO_CREATION_FLAG_SINCE or request.allow_auto_topic_creation
        topics = await _topics(node, asked, may_create, limit_mutations(context, strict_since=0))
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    config = node.config
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=config.node_id, host=context.listener.host, port=context.listener.port, rack=config.broker_rack
            )
        ],
        cluster_id=node.metadata.facts.cluster_id,
        controller_id=config.node_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
    if asked is not None:
        return response
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    return Encoded(node.metadata_answers.parts(response, node.metadata.image, version, operations))


async def _topics(
    node: _Broker, asked: Sequence[MetadataRequestTopic], may_create: bool, mutations: "MutationQuota | None"
) -> list[MetadataResponseTopic]:
    """One response for each distinct topic. If the request has any topic id, names are ignored, as in Kafka."""
    ids = dict.fromkeys(entry.topic_id for entry in asked if entry.topic_id != NO_ID)
    if ids:
        by_id = node.metadata.image.topics_by_id
        return [
            _topic(by_id[topic_id])
            if topic_id in by_id
            else MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
            for topic_id in ids
        ]
    names = list(dict.fromkeys(entry.name or "" for entry in asked))
    codes: dict[str, ErrorCode] = {}
    if may_create:
        codes = await node.metadata.create_topics_if_allowed(names, mutations)
    by_name = node.metadata.image.topics_by_name
    return [_topic(by_name[name]) if name in by_name else _missing(name, codes) for name in names]


def _missing(name: str, codes: dict[str, ErrorCode]) -> MetadataResponseTopic:
    code = codes.get(name, ErrorCode.NONE)
    if code is ErrorCode.NONE:  # auto-creation is not allowed, or the topic was deleted since
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_name_problem(name) is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal(name))


def _topic(topic: "TopicImage") -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[partition_value(index, partition) for index, partition in enumerate(topic.assignment)],
    )
