"""DeleteShareGroupOffsets (92): let an empty share group forget topics (KIP-932).

v0 is served. If the group subscribes to such a topic again, it begins by `share.auto.offset.reset`.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics
from fencepost.coordinator.group.consumer.refused import Refused
from fencepost.coordinator.share.values import Outcome
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    TopicResult,
)

HIDDEN = (bytes(16), Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED))


async def handle(
    node: Broker, request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    if not node.share_protocol:
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    names = [topic.topic_name for topic in request.topics]
    hidden = denied_topics(node, context, AclOperation.READ, names)
    try:
        found = await node.groups.shares.partitions.delete_offsets(
            request.group_id, [name for name in names if name not in hidden]
        )
    except Refused as refusal:
        return DeleteShareGroupOffsetsResponse(error_code=refusal.code, error_message=str(refusal))
    responses = []
    for name in names:
        topic_id, outcome = found.get(name, HIDDEN)
        responses.append(
            TopicResult(topic_name=name, topic_id=topic_id, error_code=outcome.error, error_message=outcome.message)
        )
    return DeleteShareGroupOffsetsResponse(responses=responses)
