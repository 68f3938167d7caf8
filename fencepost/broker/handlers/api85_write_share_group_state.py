"""WriteShareGroupState (85): the leader of partitions stores what changed in its share partitions (KIP-932).

v0-1 are served; v1 brings the number of records delivered (KIP-1226). A request that names no group, or a topic without
partitions, gets an empty response, as in Kafka's ShareCoordinatorService.
"""

from fencepost.broker.handlers.share_state import by_topic, names_all
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Response
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import brokers_only
from fencepost.coordinator.share.values import Outcome, ShareKey, StateBatch, StateUpdate
from fencepost.protocol.messages.api85_write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)


async def handle(node: Broker, request: WriteShareGroupStateRequest, context: RequestContext) -> Response:
    if (refused := brokers_only(node, request, context)) is not None:
        return refused
    if not names_all(request.group_id, request.topics):
        return WriteShareGroupStateResponse()
    updates = [
        (ShareKey(request.group_id, topic.topic_id, one.partition), _update(one))
        for topic in request.topics
        for one in topic.partitions
    ]
    outcomes = await node.share_states.write(updates)
    found = {key: outcome for (key, _), outcome in zip(updates, outcomes, strict=True)}
    return WriteShareGroupStateResponse(
        results=[
            WriteStateResult(topic_id=topic_id, partitions=[_result(*one) for one in partitions])
            for topic_id, partitions in by_topic(found)
        ]
    )


def _result(partition: int, found: Outcome) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=found.error, error_message=found.message)


def _update(one: PartitionData) -> StateUpdate:
    batches = [
        StateBatch(
            batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count, batch.held_until_ms
        )
        for batch in one.state_batches
    ]
    return StateUpdate(one.state_epoch, one.leader_epoch, one.start_offset, one.delivery_complete_count, batches)
