"""ElectLeaders (43): elect leaders for partitions (KIP-183).

v1 brings the kind of election (KIP-460).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Field, Int8, Int16, Int32, Request, Response, Since, String, Struct

TopicPartitions = Struct(
    "TopicPartitions",
    "topic" / String,
    "partitions" / Array(Int32),
)

ElectLeadersRequest = Request(
    ApiKey.ELECT_LEADERS,
    "election_type" / Since(1, Int8),
    "topic_partitions" / Field(Array(TopicPartitions), nullable=0),
    "timeout_ms" / Field(Int32, default=60000),
)

PartitionResult = Struct(
    "PartitionResult",
    "partition_id" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
)

ReplicaElectionResult = Struct(
    "ReplicaElectionResult",
    "topic" / String,
    "partition_result" / Array(PartitionResult),
)

ElectLeadersResponse = Response(
    ApiKey.ELECT_LEADERS,
    "throttle_time_ms" / Int32,
    "error_code" / Since(1, Int16),
    "replica_election_results" / Array(ReplicaElectionResult),
)
