"""Metadata (3): the brokers, and the topics with their partitions.

v0 lists all topics for an empty list, v1+ for null; v4 has the flag for auto-creation; v5 offline replicas; v7 leader
epochs; v8 authorized operations (those of the cluster up to v10 only); v10 topic ids in the response, v12 in the
request.
"""

from collections.abc import Iterable, Sequence

from fencepost.broker.brokers import brokers, controller_id
from fencepost.broker.metadata.answers import partition_value
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.metering import limit_mutations
from fencepost.broker.network.reply import Encoded
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import (
    NOT_ASKED,
    authorized_operations,
    cluster_operations,
    denied_topics,
    is_allowed,
)
from fencepost.coordinator.metadata.commands import NO_ID
from fencepost.coordinator.metadata.image import TopicImage
from fencepost.coordinator.metadata.topic_names import is_internal, topic_name_problem
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

TOPIC_IDS_SINCE = 12
AUTO_CREATION_FLAG_SINCE = 4


async def handle(node: Broker, request: MetadataRequest, context: RequestContext) -> MetadataResponse | Encoded:
    """Describe the cluster and the requested topics. Creates missing topics if the client and the broker allow it."""
    version = context.api_version
    asked = None if version == 0 and not request.topics else request.topics
    topics: list[MetadataResponseTopic] = []
    if asked is None and node.authorizer is None:
        pass  # all topics: their encoded form is cached
    elif asked is None:
        topics = _visible_topics(node, context)
    elif version < TOPIC_IDS_SINCE and any(entry.name is None or entry.topic_id != NO_ID for entry in asked):
        topics = [
            MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=entry.name or "", topic_id=entry.topic_id)
            for entry in asked
        ]
    else:
        may_create = version < AUTO_CREATION_FLAG_SINCE or request.allow_auto_topic_creation
        topics = await _topics(node, asked, may_create, context)
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = authorized_operations(
                    node, context, AclResourceType.TOPIC, topic.name or ""
                )
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
            for one in brokers(node, context)
        ],
        cluster_id=node.metadata.facts.cluster_id,
        controller_id=controller_id(node),
        topics=topics,
        cluster_authorized_operations=cluster_operations(node, context, request.include_cluster_authorized_operations),
    )
    if asked is not None or node.authorizer is not None:
        return response
    operations = (
        authorized_operations(node, context, AclResourceType.TOPIC, "")
        if request.include_topic_authorized_operations
        else NOT_ASKED
    )
    return Encoded(
        node.metadata_answers.parts(response, node.metadata.image, version, operations, node.place.with_leaders)
    )


def _visible_topics(node: Broker, context: RequestContext) -> list[MetadataResponseTopic]:
    by_name = node.metadata.image.topics_by_name
    hidden = denied_topics(node, context, AclOperation.DESCRIBE, by_name, log_denial=False)
    return [_topic(node, topic) for topic in node.metadata.image.topics_by_id.values() if topic.name not in hidden]


async def _topics(
    node: Broker, asked: Sequence[MetadataRequestTopic], may_create: bool, context: RequestContext
) -> list[MetadataResponseTopic]:
    """One response for each distinct topic. If the request has any topic id, names are ignored, as in Kafka.

    A topic that the client may not see is TOPIC_AUTHORIZATION_FAILED, whether it exists or not.
    """
    ids = dict.fromkeys(entry.topic_id for entry in asked if entry.topic_id != NO_ID)
    if ids:
        return _topics_by_id(node, ids, context)
    names = list(dict.fromkeys(entry.name or "" for entry in asked))
    hidden = denied_topics(node, context, AclOperation.DESCRIBE, names)
    seen = [name for name in names if name not in hidden]
    codes: dict[str, ErrorCode] = {}
    if may_create:
        refused = _denied_creation(node, seen, context)
        codes = await node.metadata.create_topics_if_allowed(
            [name for name in seen if name not in refused], limit_mutations(context, strict_since=0)
        )
        codes |= dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    by_name = node.metadata.image.topics_by_name
    return [
        MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        if name in hidden
        else _topic(node, by_name[name])
        if name in by_name
        else _missing(name, codes)
        for name in names
    ]


def _topics_by_id(node: Broker, ids: Iterable[bytes], context: RequestContext) -> list[MetadataResponseTopic]:
    """One response for each id. An id is no secret in Kafka; the name of a topic that the client may not see is."""
    by_id = node.metadata.image.topics_by_id
    known = [by_id[topic_id].name for topic_id in ids if topic_id in by_id]
    hidden = denied_topics(node, context, AclOperation.DESCRIBE, known)
    topics = []
    for topic_id in ids:
        topic = by_id.get(topic_id)
        if topic is not None and topic.name not in hidden:
            topics.append(_topic(node, topic))
        else:
            error = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topics.append(MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id))
    return topics


def _denied_creation(node: Broker, names: Iterable[str], context: RequestContext) -> frozenset[str]:
    """Those of `names` that this request would create, and may not."""
    by_name = node.metadata.image.topics_by_name
    missing = [name for name in names if name not in by_name] if node.authorizer is not None else []
    if not missing or not node.metadata.facts.auto_create_topics:
        return frozenset()
    if is_allowed(node, context, AclOperation.CREATE, AclResourceType.CLUSTER, log_denial=False):
        return frozenset()
    return denied_topics(node, context, AclOperation.CREATE, missing)


def _missing(name: str, codes: dict[str, ErrorCode]) -> MetadataResponseTopic:
    code = codes.get(name, ErrorCode.NONE)
    if code is ErrorCode.NONE:  # auto-creation is not allowed, or the topic was deleted since
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_name_problem(name) is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal(name))


def _topic(node: Broker, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            partition_value(index, partition)
            for index, partition in enumerate(node.place.with_leaders(topic).assignment)
        ],
    )
