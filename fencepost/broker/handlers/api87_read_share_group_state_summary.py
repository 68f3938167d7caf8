"""ReadShareGroupStateSummary (87): a group coordinator reads the start offsets of share partitions (KIP-932).

v0-1 are served; v1 brings the number of records delivered (KIP-1226). A request that names no group, or a topic without
partitions, gets an empty response, as in Kafka's ShareCoordinatorService. By a tag of fencepost's own the leader of the
partitions learns that their states are replaced.
"""

from fencepost.broker.handlers.share_state import by_topic, names_all
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Response
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import brokers_only
from fencepost.coordinator.share.values import ShareKey, StateSummary
from fencepost.protocol.messages.api87_read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)


async def handle(node: Broker, request: ReadShareGroupStateSummaryRequest, context: RequestContext) -> Response:
    if (refused := brokers_only(node, request, context)) is not None:
        return refused
    if not names_all(request.group_id, request.topics):
        return ReadShareGroupStateSummaryResponse()
    asked = {
        ShareKey(request.group_id, topic.topic_id, one.partition): one.leader_epoch
        for topic in request.topics
        for one in topic.partitions
    }
    if request.replaced:
        for key in asked:
            node.shares.forget(key)
        return ReadShareGroupStateSummaryResponse()
    found = await node.share_states.summaries(asked)
    return ReadShareGroupStateSummaryResponse(
        results=[
            ReadStateSummaryResult(topic_id=topic_id, partitions=[_result(*one) for one in partitions])
            for topic_id, partitions in by_topic(found)
        ]
    )


def _result(partition: int, found: StateSummary) -> PartitionResult:
    if found.error:
        return PartitionResult(partition=partition, error_code=found.error, error_message=found.message)
    return PartitionResult(
        partition=partition,
        state_epoch=found.state_epoch,
        leader_epoch=found.leader_epoch,
        start_offset=found.start_offset,
        delivery_complete_count=found.delivery_complete_count,
    )
