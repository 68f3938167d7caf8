"""DescribeProducers (61): a partition's producers and their open transactions (KIP-664, T19).

v0 is served.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from fencepost.protocol.topics import TopicPartition


def handle(node: Broker, request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    refused = denied_topics(node, context, AclOperation.READ, (topic.name for topic in request.topics))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    if topic.name in refused
                    else _describe(node, TopicPartition(topic.name, index))
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(node: Broker, tp: TopicPartition) -> PartitionResponse:
    log = node.partition(tp)
    if log is None:
        return PartitionResponse(
            partition_index=tp.partition, error_code=node.absence(tp), error_message=f"Partition {tp} is not there"
        )
    producers = [
        ProducerState(
            producer_id=state.producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp_ms,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=state.txn_first_offset,
        )
        for state in log.producers.entries()
    ]
    return PartitionResponse(partition_index=tp.partition, active_producers=producers)
