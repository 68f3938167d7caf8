"""DeleteTopics (20): by name, or since v6 by id. v3 has its own code for "deletion is disabled"; v5 error messages."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.metering import limit_mutations
from fencepost.broker.ports import HasMetadata
from fencepost.coordinator.metadata.commands import TopicRef
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

BY_ID_SINCE = 6
DISABLED_CODE_SINCE = 3
STRICT_QUOTA_SINCE = 5


async def handle(node: HasMetadata, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete the topics in one append; the response waits until that is durable."""
    version = context.api_version
    if version >= BY_ID_SINCE:
        wanted = [TopicRef(entry.name, entry.topic_id) for entry in request.topics]
    else:
        wanted = [TopicRef(name) for name in request.topic_names]
    responses = []
    for deleted in await node.metadata.delete_topics(wanted, limit_mutations(context, STRICT_QUOTA_SINCE)):
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
