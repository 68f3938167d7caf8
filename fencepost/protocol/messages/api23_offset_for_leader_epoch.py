"""OffsetForLeaderEpoch (23): where the log of a leader epoch ends (KIP-101, KIP-320)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Field, Int16, Int32, Int64, Request, Response, Since, String, Struct

OffsetForLeaderPartition = Struct(
    "OffsetForLeaderPartition",
    "partition" / Int32,
    "current_leader_epoch" / Since(2, Int32, default=-1),
    "leader_epoch" / Int32,
)

OffsetForLeaderTopic = Struct(
    "OffsetForLeaderTopic",
    "topic" / String,
    "partitions" / Array(OffsetForLeaderPartition),
)

OffsetForLeaderEpochRequest = Request(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    "replica_id" / Since(3, Int32, default=-2),
    "topics" / Array(OffsetForLeaderTopic),
)

EpochEndOffset = Struct(
    "EpochEndOffset",
    "error_code" / Int16,
    "partition" / Int32,
    "leader_epoch" / Since(1, Int32, default=-1),
    "end_offset" / Field(Int64, default=-1),
)

OffsetForLeaderTopicResult = Struct(
    "OffsetForLeaderTopicResult",
    "topic" / String,
    "partitions" / Array(EpochEndOffset),
)

OffsetForLeaderEpochResponse = Response(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    "throttle_time_ms" / Since(2, Int32),
    "topics" / Array(OffsetForLeaderTopicResult),
)
