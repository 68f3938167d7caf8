"""ShareAcknowledge (79): acknowledge acquired records (KIP-932).

v1-2 are served. v2 brings renewals (KIP-1222). Epoch -1 ends the session: what the member still holds is released.
"""

from collections.abc import Mapping, Sequence

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Reply
from fencepost.broker.ports import Broker
from fencepost.broker.share.requests import (
    RENEW_SINCE,
    Acknowledgements,
    ReleasingBatch,
    batches_of,
    by_topic,
    in_steps,
    is_member_id,
    name_leaders,
    names_in_steps,
    pause_in,
)
from fencepost.broker.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MemberKey,
    ShareSession,
    ShareSessionError,
    TopicIdPartition,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api79_share_acknowledge import (
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def handle(node: Broker, request: ShareAcknowledgeRequest, context: RequestContext) -> Reply:
    """Check the request and its session; the rest may wait."""
    if not node.share_protocol:
        return ShareAcknowledgeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if request.group_id is None or not is_member_id(request.member_id):
        what = "group id" if request.group_id is None else "member id"
        return ShareAcknowledgeResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=f"Invalid {what} in the request."
        )
    member = MemberKey(request.group_id, request.member_id or "")
    sessions, epoch = node.shares.sessions, request.share_session_epoch
    try:
        if epoch == INITIAL_EPOCH:
            raise ShareSessionError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session = sessions.get(member) if epoch == FINAL_EPOCH else sessions.continued(member, epoch)
    except ShareSessionError as error:
        return ShareAcknowledgeResponse(error_code=error.code)
    asked = batches_of(request.topics)
    pause_in(node, context, len(asked))
    return _answer(node, request, context, session, member, asked)


async def _answer(
    node: Broker,
    request: ShareAcknowledgeRequest,
    context: RequestContext,
    session: ShareSession,
    member: MemberKey,
    asked: Mapping[TopicIdPartition, Sequence[ReleasingBatch]],
) -> ShareAcknowledgeResponse:
    """Take the acknowledgements; answer when they are stored."""
    large = context.large
    acknowledgements = Acknowledgements(
        node.shares,
        member,
        asked,
        await in_steps(large, names_in_steps(node, context, list(asked))),
        may_renew=context.api_version >= RENEW_SINCE,
        is_renewal=context.api_version >= RENEW_SINCE and request.is_renew_ack,
    )
    await in_steps(large, acknowledgements.take())
    answers = {
        part: PartitionData(partition_index=part.partition, error_code=error, error_message=message)
        for part, (error, message) in (await acknowledgements.answers()).items()
    }
    if request.share_session_epoch == FINAL_EPOCH:
        node.shares.leave(member, node.shares.sessions.end(member))
    leaders = name_leaders(node, context, answers, NodeEndpoint)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=node.share_settings(member.group_id).record_lock_duration_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=parts)
            for topic_id, parts in by_topic(answers).items()
        ],
        node_endpoints=leaders,
    )
