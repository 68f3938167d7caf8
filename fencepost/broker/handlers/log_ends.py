"""The ends of all logs of this broker at one instant, for a backup; on several cores all of them pause for it.

While its event loop is blocked, a core appends nothing, makes nothing durable and answers no client. If all cores are
blocked at some instant, their ends are those of that instant: nothing that a client or another core got to know before
it is missing, and nothing that follows from later records is there. So it is a state that a power cut could leave.
"""

import time

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Response
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import brokers_only, is_allowed
from fencepost.broker.security.refusals import refuse
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogEnd,
    LogEnds,
    LogEndTopic,
)

PAUSE_MS_MAX = 1000


async def log_ends(node: Broker, request: DescribeLogDirsRequest, context: RequestContext) -> Response:
    """Pause for `pause_ms`, and answer with the ends of the open logs, and when the pause began and ended.

    The times are of the machine's monotonic clock, so those of several cores can be compared. A pause needs the right
    that brokers have; what was acknowledged before the request is flushed first.
    """
    if request.pause_ms:
        if not is_allowed(node, context, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER):
            return refuse(request, context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if (refused := brokers_only(node, request, context)) is not None:
            return refused
    await node.flusher.flush_all(list(node.logs.logs()))
    return DescribeLogDirsResponse(ends=_ends_after_pause(node, min(request.pause_ms, PAUSE_MS_MAX)))


def _ends_after_pause(node: Broker, pause_ms: int) -> LogEnds:
    """Block the event loop, then collect the ends."""
    since_us = _now_us(node)
    time.sleep(pause_ms / 1000)
    by_topic: dict[str, list[LogEnd]] = {}
    for log in node.logs.logs():
        if log.writable:
            end = LogEnd(partition_index=log.tp.partition, high_watermark=log.high_watermark)
            by_topic.setdefault(log.tp.topic, []).append(end)
    topics = [LogEndTopic(name=name, partitions=ends) for name, ends in by_topic.items()]
    return LogEnds(since_us=since_us, until_us=_now_us(node), topics=topics)


def _now_us(node: Broker) -> int:
    return int(node.clock.monotonic() * 1_000_000)
