"""ListPartitionReassignments (46): replicas that are being moved (KIP-455)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Field, Int16, Int32, Request, Response, String, Struct

ListPartitionReassignmentsTopics = Struct(
    "ListPartitionReassignmentsTopics",
    "name" / String,
    "partition_indexes" / Array(Int32),
)

ListPartitionReassignmentsRequest = Request(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    "timeout_ms" / Field(Int32, default=60000),
    "topics" / Field(Array(ListPartitionReassignmentsTopics), default=None, nullable=0),
)

OngoingPartitionReassignment = Struct(
    "OngoingPartitionReassignment",
    "partition_index" / Int32,
    "replicas" / Array(Int32),
    "adding_replicas" / Array(Int32),
    "removing_replicas" / Array(Int32),
)

OngoingTopicReassignment = Struct(
    "OngoingTopicReassignment",
    "name" / String,
    "partitions" / Array(OngoingPartitionReassignment),
)

ListPartitionReassignmentsResponse = Response(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "topics" / Array(OngoingTopicReassignment),
)
