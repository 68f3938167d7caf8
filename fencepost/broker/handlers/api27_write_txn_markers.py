"""WriteTxnMarkers (27): control batches that end transactions on partitions, for brokers and for an operator's abort.

v0-2 are served; v2 says which transaction version a marker follows (KIP-1228). It goes past the coordinator: what it
ends there is ended, whatever the coordinator believes.
"""

from typing import TYPE_CHECKING, Any

from fencepost.broker.context import RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api27_write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.node import Node


async def handle(node: "Node", request: Any, context: RequestContext) -> Any:
    """Write the markers in the order of the request; each is durable and visible before the answer."""
    return WriteTxnMarkersResponse(markers=[await _write(node, marker) for marker in request.markers])


async def _write(node: "Node", marker: Any) -> Any:
    wanted = [TopicPartition(topic.name, partition) for topic in marker.topics for partition in topic.partition_indexes]
    codes = await node.transactions.markers.write_markers(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
        frozenset(wanted),
    )
    topics = [
        WritableTxnMarkerTopicResult(
            name=topic.name,
            partitions=[
                WritableTxnMarkerPartitionResult(
                    partition_index=partition,
                    error_code=codes.get(TopicPartition(topic.name, partition), ErrorCode.UNKNOWN_SERVER_ERROR),
                )
                for partition in topic.partition_indexes
            ],
        )
        for topic in marker.topics
    ]
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)
