"""DescribeQuorum (55): the replicas of the metadata log (KIP-595): this node is its leader and only voter.

v1 has the times when a voter last fetched and was caught up (KIP-836): for the leader that is now. v2 has listeners
(KIP-853): the controller's clients connect to the broker's listener.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)
from fencepost.protocol.messages.api55_describe_quorum import Node as QuorumNode
from fencepost.protocol.topics import METADATA_TOPIC

DIRECTORY_UNKNOWN = bytes(16)
MESSAGE_SINCE = 2
_NOT_HOSTED = "This server does not host this topic-partition."


def handle(node: Broker, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    """Describe the quorum of `__cluster_metadata-0`. As in Kafka, the request must name only this partition."""
    found = [(topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions]
    served = found == [(METADATA_TOPIC, 0)]
    topics = [
        TopicDataResponse(
            topic_name=topic.topic_name,
            partitions=[
                _quorum(node) if served else _unknown(part.partition_index, context.api_version)
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    listener = Listener(name=context.session.listener_name, host=context.listener.host, port=context.listener.port)
    nodes = [QuorumNode(node_id=node.config.node_id, listeners=[listener])] if served else []
    return DescribeQuorumResponse(error_message="", topics=topics, nodes=nodes)


def _quorum(node: Broker) -> PartitionDataResponse:
    log, now_ms = node.metadata_log, node.clock.now_ms()
    voter = ReplicaState(
        replica_id=node.config.node_id,
        replica_directory_id=DIRECTORY_UNKNOWN,
        log_end_offset=log.log_end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return PartitionDataResponse(
        partition_index=0,
        error_message="",
        leader_id=node.config.node_id,
        leader_epoch=log.leader_epoch,
        high_watermark=log.high_watermark,
        current_voters=[voter],
        observers=[],
    )


def _unknown(number: int, version: int) -> PartitionDataResponse:
    return PartitionDataResponse(
        partition_index=number,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=_NOT_HOSTED if version >= MESSAGE_SINCE else "",
    )
