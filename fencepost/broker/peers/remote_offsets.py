"""OffsetFetch at a broker that does not coordinate the group any more: it asks the coordinator itself.

Groups move while a cluster runs, much more often than between brokers of Kafka. librdkafka does not repeat OffsetFetch
after NOT_COORDINATOR, nor for long after COORDINATOR_LOAD_IN_PROGRESS: its consumer then never reads the partitions
that it was assigned (confluentinc/librdkafka#5586).
"""

import copy
import logging
from typing import Any

import trio

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.dispatch import Handler
from fencepost.broker.network.reply import Ready, Reply, ready
from fencepost.broker.peers.envelope import ask_for
from fencepost.broker.peers.forwarding import PATIENCE_SECONDS, RETRY_SECONDS
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.place import Place
from fencepost.broker.ports import Broker
from fencepost.coordinator.partitioning import partition_for
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api09_offset_fetch import OffsetFetchResponse
from fencepost.protocol.topics import GROUP_TOPIC

ERROR_SINCE = 2
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})

logger = logging.getLogger(__name__)


def with_remote_offsets(place: Place, api_key: int, handle: Handler) -> Handler:
    """The handler of an API; that of OffsetFetch also answers for groups that other brokers coordinate."""
    if api_key != ApiKey.OFFSET_FETCH:
        return handle

    def fetching(node: Broker, request: Any, context: RequestContext) -> Reply:
        if context.session.forwarded or context.api_version < ERROR_SINCE:
            return handle(node, request, context)
        until = trio.current_time() + PATIENCE_SECONDS
        return (_many_groups if request.groups else _one_group)(place, handle, node, request, context, until)

    return fetching


async def _many_groups(
    place: Place, handle: Handler, node: Broker, request: Any, context: RequestContext, until: float
) -> Ready:
    answer = await ready(handle(node, request, context))
    assert isinstance(answer, OffsetFetchResponse)
    for number, group in enumerate(answer.groups):
        if _has_moved(OffsetFetchResponse(groups=[group])):
            single = copy.copy(request)
            single.groups = [request.groups[number]]
            (answer.groups[number],) = (await _one_group(place, handle, node, single, context, until)).groups
    return answer


async def _one_group(
    place: Place, handle: Handler, node: Broker, request: Any, context: RequestContext, until: float
) -> OffsetFetchResponse:
    """The answer of the group's coordinator, once there is one; if there is none in time, this broker's own."""
    while True:
        answer = await ready(handle(node, request, context))
        assert isinstance(answer, OffsetFetchResponse)
        if not _has_moved(answer) or trio.current_time() > until:
            return answer
        coordinator = _coordinator(place, node, request)
        if coordinator is not None and coordinator != place.node_id:
            try:
                found = await ask_for(place.links, coordinator, request, context)
            except PeerUnavailable as error:
                logger.debug("the offsets of a group cannot be fetched yet: %s", error)
            else:
                assert isinstance(found, OffsetFetchResponse)
                if not _has_moved(found):
                    return found
        await trio.sleep(RETRY_SECONDS)


def _has_moved(answer: OffsetFetchResponse) -> bool:
    """Whether the group's coordinator is elsewhere, or still loads. It may have moved while this broker answered."""
    whole = answer.groups[0] if answer.groups else answer
    codes = {one.error_code for topic in whole.topics or () for one in topic.partitions} | {whole.error_code}
    return not codes.isdisjoint(_MOVED)


def _coordinator(place: Place, node: Broker, request: Any) -> int | None:
    """The broker that owns the group, as far as this one knows."""
    group_id = request.groups[0].group_id if request.groups else request.group_id
    topic = node.metadata.image.topics_by_name[GROUP_TOPIC]
    return place.leader(topic.topic_id, partition_for(group_id, topic.partitions)).leader
