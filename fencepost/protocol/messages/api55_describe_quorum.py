"""DescribeQuorum (55): leader, voters and observers of the metadata quorum (KIP-595).

v1 brings when each replica fetched and was caught up (KIP-836), v2 directory ids and listeners (KIP-853).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Int16,
    Int32,
    Int64,
    RequestValue,
    ResponseValue,
    String,
    Uint16,
    Uuid,
    Value,
    since,
)


class PartitionData(Value):
    partition_index: Int32 = 0


class TopicData(Value):
    topic_name: String = ""
    partitions: list[PartitionData] = []


class DescribeQuorumRequest(RequestValue["DescribeQuorumResponse"], api=ApiKey.DESCRIBE_QUORUM):
    topics: list[TopicData] = []


class ReplicaState(Value):
    replica_id: Int32 = 0
    replica_directory_id: Uuid = since(2)
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Int64 = since(1, default=-1)
    last_caught_up_timestamp: Int64 = since(1, default=-1)


class PartitionDataResponse(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = since(2, default="")
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class TopicDataResponse(Value):
    topic_name: String = ""
    partitions: list[PartitionDataResponse] = []


class Listener(Value):
    name: String = since(2)
    host: String = since(2)
    port: Uint16 = since(2)


class Node(Value):
    node_id: Int32 = since(2)
    listeners: list[Listener] = since(2)


class DescribeQuorumResponse(ResponseValue, api=ApiKey.DESCRIBE_QUORUM):
    error_code: Int16 = 0
    error_message: String | None = since(2, default="")
    topics: list[TopicDataResponse] = []
    nodes: list[Node] = since(2)
