"""DescribeQuorum (55): leader, voters and observers of the metadata quorum (KIP-595).

v1 brings when each replica fetched and was caught up (KIP-836), v2 directory ids and listeners (KIP-853).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Int16, Int32, Int64, Request, Response, Since, String, Struct, Uint16, Uuid

PartitionData = Struct(
    "PartitionData",
    "partition_index" / Int32,
)

TopicData = Struct(
    "TopicData",
    "topic_name" / String,
    "partitions" / Array(PartitionData),
)

DescribeQuorumRequest = Request(
    ApiKey.DESCRIBE_QUORUM,
    "topics" / Array(TopicData),
)

ReplicaState = Struct(
    "ReplicaState",
    "replica_id" / Int32,
    "replica_directory_id" / Since(2, Uuid),
    "log_end_offset" / Int64,
    "last_fetch_timestamp" / Since(1, Int64, default=-1),
    "last_caught_up_timestamp" / Since(1, Int64, default=-1),
)

PartitionDataResponse = Struct(
    "PartitionDataResponse",
    "partition_index" / Int32,
    "error_code" / Int16,
    "error_message" / Since(2, String, nullable=2),
    "leader_id" / Int32,
    "leader_epoch" / Int32,
    "high_watermark" / Int64,
    "current_voters" / Array(ReplicaState),
    "observers" / Array(ReplicaState),
)

TopicDataResponse = Struct(
    "TopicDataResponse",
    "topic_name" / String,
    "partitions" / Array(PartitionDataResponse),
)

Listener = Struct(
    "Listener",
    "name" / Since(2, String),
    "host" / Since(2, String),
    "port" / Since(2, Uint16),
)

Node = Struct(
    "Node",
    "node_id" / Since(2, Int32),
    "listeners" / Since(2, Array(Listener)),
)

DescribeQuorumResponse = Response(
    ApiKey.DESCRIBE_QUORUM,
    "error_code" / Int16,
    "error_message" / Since(2, String, nullable=2),
    "topics" / Array(TopicDataResponse),
    "nodes" / Since(2, Array(Node)),
)
