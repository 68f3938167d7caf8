"""ListOffsets (2): offsets by time or by name (earliest, latest, the last stable offset).

v0 answers a list of offsets and is used only by old librdkafka; v2 brings the isolation level, v4 leader epochs,
v7 the maximum timestamp (KIP-734), v8 and v9 the local and tiered ends, v10 a timeout, v11 the earliest pending upload.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Int8, Int16, Int32, Int64, Request, Response, Since, String, Struct, Until

ListOffsetsPartition = Struct(
    "ListOffsetsPartition",
    "partition_index" / Int32,
    "current_leader_epoch" / Since(4, Int32, default=-1),
    "timestamp" / Int64,
    "max_num_offsets" / Until(0, Int32, default=1),
)

ListOffsetsTopic = Struct(
    "ListOffsetsTopic",
    "name" / String,
    "partitions" / Array(ListOffsetsPartition),
)

ListOffsetsRequest = Request(
    ApiKey.LIST_OFFSETS,
    "replica_id" / Int32,
    "isolation_level" / Since(2, Int8),
    "topics" / Array(ListOffsetsTopic),
    "timeout_ms" / Since(10, Int32),
)

ListOffsetsPartitionResponse = Struct(
    "ListOffsetsPartitionResponse",
    "partition_index" / Int32,
    "error_code" / Int16,
    "old_style_offsets" / Until(0, Array(Int64)),
    "timestamp" / Since(1, Int64, default=-1),
    "offset" / Since(1, Int64, default=-1),
    "leader_epoch" / Since(4, Int32, default=-1),
)

ListOffsetsTopicResponse = Struct(
    "ListOffsetsTopicResponse",
    "name" / String,
    "partitions" / Array(ListOffsetsPartitionResponse),
)

ListOffsetsResponse = Response(
    ApiKey.LIST_OFFSETS,
    "throttle_time_ms" / Since(2, Int32),
    "topics" / Array(ListOffsetsTopicResponse),
)
