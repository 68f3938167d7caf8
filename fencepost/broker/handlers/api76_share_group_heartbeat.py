"""ShareGroupHeartbeat (76): a member of a share group joins, stays, receives its partitions, and leaves (KIP-932).

v1 is served. If share groups are disabled (`share.version` 0), the code is UNSUPPORTED_VERSION.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.group.share.requests import ShareHeartbeat
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api76_share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)


async def handle(
    node: Broker, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse:
    if not node.share_protocol:
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    reply = await node.groups.shares.heartbeat(
        ShareHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            topics=None if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names),
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",
        )
    )
    assignment = None
    if reply.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in reply.assignment.items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=reply.text,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )
