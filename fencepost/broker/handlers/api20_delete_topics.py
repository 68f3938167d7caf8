"""DeleteTopics (20): by name, or since v6 by id. v3 has its own code for "deletion is disabled"; v5 error messages."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.metering import limit_mutations
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics, is_allowed
from fencepost.coordinator.metadata.commands import NO_ID, TopicRef
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

BY_ID_SINCE = 6
DISABLED_CODE_SINCE = 3
STRICT_QUOTA_SINCE = 5


async def handle(node: Broker, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete the topics in one append; the response waits until that is durable."""
    version = context.api_version
    if version >= BY_ID_SINCE:
        wanted = [TopicRef(entry.name, entry.topic_id) for entry in request.topics]
    else:
        wanted = [TopicRef(name) for name in request.topic_names]
    refused = _refused(node, wanted, context)
    responses = list(refused.values())
    allowed = [topic for topic in wanted if topic not in refused]
    for deleted in await node.metadata.delete_topics(allowed, limit_mutations(context, STRICT_QUOTA_SINCE)):
        code = deleted.outcome.code
        if code is ErrorCode.TOPIC_DELETION_DISABLED and version < DISABLED_CODE_SINCE:
            code = ErrorCode.INVALID_REQUEST
        responses.append(
            DeletableTopicResult(
                name=deleted.name if version >= BY_ID_SINCE else deleted.name or "",
                topic_id=deleted.topic_id,
                error_code=code,
                error_message=deleted.outcome.message,
            )
        )
    return DeleteTopicsResponse(responses=responses)


def _refused(node: Broker, wanted: list[TopicRef], context: RequestContext) -> dict[TopicRef, DeletableTopicResult]:
    """The topics that the client may not delete. A name that the client may not see is not answered to its id."""
    if is_allowed(node, context, AclOperation.DELETE, AclResourceType.CLUSTER, log_denial=False):
        return {}
    image = node.metadata.image
    names: dict[TopicRef, str] = {}
    for topic in wanted:
        found = image.topics_by_id.get(topic.topic_id)
        if topic.name is not None and topic.topic_id == NO_ID:
            names[topic] = topic.name
        elif topic.name is None and found is not None:
            names[topic] = found.name
    hidden = denied_topics(node, context, AclOperation.DESCRIBE, names.values())
    kept = denied_topics(node, context, AclOperation.DELETE, (name for name in names.values() if name not in hidden))
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    results: dict[TopicRef, DeletableTopicResult] = {}
    for topic, name in names.items():
        if name in hidden:
            results[topic] = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error)
        elif name in kept and (topic.name is None or name in image.topics_by_name):
            results[topic] = DeletableTopicResult(name=name, topic_id=topic.topic_id, error_code=error)
    return results
