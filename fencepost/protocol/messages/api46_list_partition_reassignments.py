"""ListPartitionReassignments (46): replicas that are being moved (KIP-455)."""

from fencepost.protocol.schema import Array, Field, Int16, Int32, Request, Response, String, Struct

VERSIONS = (0, 0)
FLEXIBLE = 0

ListPartitionReassignmentsTopics = Struct(
    "ListPartitionReassignmentsTopics",
    "name" / String,
    "partition_indexes" / Array(Int32),
)

ListPartitionReassignmentsRequest = Request(
    46,
    "ListPartitionReassignmentsRequest",
    VERSIONS,
    FLEXIBLE,
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
    46,
    "ListPartitionReassignmentsResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "topics" / Array(OngoingTopicReassignment),
)
