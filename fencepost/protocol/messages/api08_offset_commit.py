"""OffsetCommit (8): store a group's offsets.

v0 and v1 are used only by librdkafka 1.0 to 1.2; v2-4 have a retention time, v7 the instance id (KIP-345),
v9 member epochs (KIP-848), v10 topic ids.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Array,
    Field,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    Since,
    String,
    Struct,
    Until,
    Uuid,
)

OffsetCommitRequestPartition = Struct(
    "OffsetCommitRequestPartition",
    "partition_index" / Int32,
    "committed_offset" / Int64,
    "committed_leader_epoch" / Since(6, Int32, default=-1),
    "commit_timestamp" / Field(Int64, 1, 1, default=-1),
    "committed_metadata" / Field(String, nullable=0),
)

OffsetCommitRequestTopic = Struct(
    "OffsetCommitRequestTopic",
    "name" / Until(9, String),
    "topic_id" / Since(10, Uuid),
    "partitions" / Array(OffsetCommitRequestPartition),
)

OffsetCommitRequest = Request(
    ApiKey.OFFSET_COMMIT,
    "group_id" / String,
    "generation_id_or_member_epoch" / Since(1, Int32, default=-1),
    "member_id" / Since(1, String),
    "group_instance_id" / Since(7, String, default=None, nullable=7),
    "retention_time_ms" / Field(Int64, 2, 4, default=-1),
    "topics" / Array(OffsetCommitRequestTopic),
)

OffsetCommitResponsePartition = Struct(
    "OffsetCommitResponsePartition",
    "partition_index" / Int32,
    "error_code" / Int16,
)

OffsetCommitResponseTopic = Struct(
    "OffsetCommitResponseTopic",
    "name" / Until(9, String),
    "topic_id" / Since(10, Uuid),
    "partitions" / Array(OffsetCommitResponsePartition),
)

OffsetCommitResponse = Response(
    ApiKey.OFFSET_COMMIT,
    "throttle_time_ms" / Since(3, Int32),
    "topics" / Array(OffsetCommitResponseTopic),
)
