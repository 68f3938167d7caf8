"""DeleteShareGroupState (86): a group coordinator deletes the state of share partitions (KIP-932).

v0 is served. A request that names no group, or a topic without partitions, gets an empty response, as in Kafka's
ShareCoordinatorService.
"""

from fencepost.broker.handlers.share_state import by_topic, names_all
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Response
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import brokers_only
from fencepost.coordinator.share.values import Outcome, ShareKey
from fencepost.protocol.messages.api86_delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)


async def handle(node: Broker, request: DeleteShareGroupStateRequest, context: RequestContext) -> Response:
    if (refused := brokers_only(node, request, context)) is not None:
        return refused
    if not names_all(request.group_id, request.topics):
        return DeleteShareGroupStateResponse()
    found = await node.share_states.delete(
        ShareKey(request.group_id, topic.topic_id, one.partition)
        for topic in request.topics
        for one in topic.partitions
    )
    return DeleteShareGroupStateResponse(
        results=[
            DeleteStateResult(topic_id=topic_id, partitions=[_result(*one) for one in partitions])
            for topic_id, partitions in by_topic(found)
        ]
    )


def _result(partition: int, found: Outcome) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=found.error, error_message=found.message)
