"""ReadShareGroupState (84): the leader of partitions reads the state of its share partitions (KIP-932).

v0 is served. A request that names no group, or a topic without partitions, gets an empty response, as in Kafka's
ShareCoordinatorService.
"""

from fencepost.broker.handlers.share_state import by_topic, names_all
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Response
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import brokers_only
from fencepost.coordinator.share.values import ShareKey, StoredState
from fencepost.coordinator.share.values import StateBatch as UndecidedBatch
from fencepost.protocol.messages.api84_read_share_group_state import (
    PartitionResult,
    PendingBatch,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)


async def handle(node: Broker, request: ReadShareGroupStateRequest, context: RequestContext) -> Response:
    if (refused := brokers_only(node, request, context)) is not None:
        return refused
    if not names_all(request.group_id, request.topics):
        return ReadShareGroupStateResponse()
    asked = {
        ShareKey(request.group_id, topic.topic_id, one.partition): one.leader_epoch
        for topic in request.topics
        for one in topic.partitions
    }
    found = await node.share_states.read_all(asked)
    return ReadShareGroupStateResponse(
        results=[
            ReadStateResult(topic_id=topic_id, partitions=[_result(*one) for one in partitions])
            for topic_id, partitions in by_topic(found)
        ]
    )


def _result(partition: int, found: StoredState) -> PartitionResult:
    if found.error:
        return PartitionResult(partition=partition, error_code=found.error, error_message=found.message)
    return PartitionResult(
        partition=partition,
        state_epoch=found.state_epoch,
        start_offset=found.start_offset,
        state_batches=[
            StateBatch(
                first_offset=one.first_offset,
                last_offset=one.last_offset,
                delivery_state=one.delivery_state,
                delivery_count=one.delivery_count,
                held_until_ms=one.held_until_ms,
            )
            for one in found.batches
        ],
        pending=[_pending(*one) for one in found.pending],
    )


def _pending(producer_id: int, batch: UndecidedBatch) -> PendingBatch:
    return PendingBatch(
        producer_id=producer_id,
        first_offset=batch.first_offset,
        last_offset=batch.last_offset,
        delivery_state=batch.delivery_state,
        delivery_count=batch.delivery_count,
    )
