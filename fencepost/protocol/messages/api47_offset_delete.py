"""OffsetDelete (47): forget some of a group's positions (KIP-496)."""

from fencepost.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct

VERSIONS = (0, 0)
FLEXIBLE = None

OffsetDeleteRequestPartition = Struct(
    "OffsetDeleteRequestPartition",
    "partition_index" / Int32,
)

OffsetDeleteRequestTopic = Struct(
    "OffsetDeleteRequestTopic",
    "name" / String,
    "partitions" / Array(OffsetDeleteRequestPartition),
)

OffsetDeleteRequest = Request(
    47,
    "OffsetDeleteRequest",
    VERSIONS,
    FLEXIBLE,
    "group_id" / String,
    "topics" / Array(OffsetDeleteRequestTopic),
)

OffsetDeleteResponsePartition = Struct(
    "OffsetDeleteResponsePartition",
    "partition_index" / Int32,
    "error_code" / Int16,
)

OffsetDeleteResponseTopic = Struct(
    "OffsetDeleteResponseTopic",
    "name" / String,
    "partitions" / Array(OffsetDeleteResponsePartition),
)

OffsetDeleteResponse = Response(
    47,
    "OffsetDeleteResponse",
    VERSIONS,
    FLEXIBLE,
    "error_code" / Int16,
    "throttle_time_ms" / Int32,
    "topics" / Array(OffsetDeleteResponseTopic),
)
