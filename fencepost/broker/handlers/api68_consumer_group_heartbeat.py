"""ConsumerGroupHeartbeat (68): a member of a KIP-848 group joins, stays, receives its partitions, and leaves.

v0-1 are served; v1 brings regular expressions and requires the client to generate its own member id (KIP-1082). If the
consumer protocol is disabled (`group.version` 0, or not among `group.coordinator.rebalance.protocols`), the code is
UNSUPPORTED_VERSION.
"""

from functools import partial

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Reply, reply_with
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import is_allowed
from fencepost.coordinator.group.consumer.requests import Heartbeat, HeartbeatReply
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

OWN_MEMBER_ID_SINCE = 1


def handle(node: Broker, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Reply:
    if not node.consumer_protocol:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    may_see = partial(is_allowed, node, context, AclOperation.DESCRIBE, AclResourceType.TOPIC, log_denial=False)
    owned = request.topic_partitions
    asked = node.groups.consumers.ask_heartbeat(
        Heartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=None if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names),
            regex=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            reported=None if owned is None else tuple((topic.topic_id, tuple(topic.partitions)) for topic in owned),
            client_id=context.client_id or "",
            client_host=f"/{context.client_host}",
            member_id_required=context.api_version >= OWN_MEMBER_ID_SINCE,
            may_see=None if node.authorizer is None else may_see,
        )
    )
    return reply_with(_response, asked)


def _response(reply: HeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=reply.text,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=_assignment(reply),
    )


def _assignment(reply: HeartbeatReply) -> Assignment | None:
    if reply.assignment is None:
        return None
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in reply.assignment.items()
        ]
    )
