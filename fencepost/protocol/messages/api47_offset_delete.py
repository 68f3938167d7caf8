"""OffsetDelete (47): delete some of a group's offsets (KIP-496)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct

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
    ApiKey.OFFSET_DELETE,
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
    ApiKey.OFFSET_DELETE,
    "error_code" / Int16,
    "throttle_time_ms" / Int32,
    "topics" / Array(OffsetDeleteResponseTopic),
)
