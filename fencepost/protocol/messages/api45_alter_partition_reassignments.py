"""AlterPartitionReassignments (45): begin or cancel moves of replicas (KIP-455).

v1 lets the client forbid a change of the replication factor (KIP-860).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Field, Int16, Int32, Request, Response, Since, String, Struct

ReassignablePartition = Struct(
    "ReassignablePartition",
    "partition_index" / Int32,
    "replicas" / Field(Array(Int32), default=None, nullable=0),
)

ReassignableTopic = Struct(
    "ReassignableTopic",
    "name" / String,
    "partitions" / Array(ReassignablePartition),
)

AlterPartitionReassignmentsRequest = Request(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    "timeout_ms" / Field(Int32, default=60000),
    "allow_replication_factor_change" / Since(1, Bool, default=True),
    "topics" / Array(ReassignableTopic),
)

ReassignablePartitionResponse = Struct(
    "ReassignablePartitionResponse",
    "partition_index" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
)

ReassignableTopicResponse = Struct(
    "ReassignableTopicResponse",
    "name" / String,
    "partitions" / Array(ReassignablePartitionResponse),
)

AlterPartitionReassignmentsResponse = Response(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    "throttle_time_ms" / Int32,
    "allow_replication_factor_change" / Since(1, Bool, default=True),
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "responses" / Array(ReassignableTopicResponse),
)
