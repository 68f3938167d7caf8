"""OffsetFetch (9): read a group's committed offsets.

v2 may ask for all topics, v7 brings requireStable (KIP-447), v8 many groups at once (KIP-709), v9 member epochs
(KIP-848), v10 topic ids.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Array,
    Bool,
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

OffsetFetchRequestTopic = Struct(
    "OffsetFetchRequestTopic",
    "name" / Until(7, String),
    "partition_indexes" / Until(7, Array(Int32)),
)

OffsetFetchRequestTopics = Struct(
    "OffsetFetchRequestTopics",
    "name" / Field(String, 8, 9),
    "topic_id" / Since(10, Uuid),
    "partition_indexes" / Since(8, Array(Int32)),
)

OffsetFetchRequestGroup = Struct(
    "OffsetFetchRequestGroup",
    "group_id" / Since(8, String),
    "member_id" / Since(9, String, default=None, nullable=9),
    "member_epoch" / Since(9, Int32, default=-1),
    "topics" / Since(8, Array(OffsetFetchRequestTopics), nullable=8),
)

OffsetFetchRequest = Request(
    ApiKey.OFFSET_FETCH,
    "group_id" / Until(7, String),
    "topics" / Until(7, Array(OffsetFetchRequestTopic), nullable=2),
    "groups" / Since(8, Array(OffsetFetchRequestGroup)),
    "require_stable" / Since(7, Bool),
)

OffsetFetchResponsePartition = Struct(
    "OffsetFetchResponsePartition",
    "partition_index" / Until(7, Int32),
    "committed_offset" / Until(7, Int64),
    "committed_leader_epoch" / Field(Int32, 5, 7, default=-1),
    "metadata" / Until(7, String, nullable=0),
    "error_code" / Until(7, Int16),
)

OffsetFetchResponseTopic = Struct(
    "OffsetFetchResponseTopic",
    "name" / Until(7, String),
    "partitions" / Until(7, Array(OffsetFetchResponsePartition)),
)

OffsetFetchResponsePartitions = Struct(
    "OffsetFetchResponsePartitions",
    "partition_index" / Since(8, Int32),
    "committed_offset" / Since(8, Int64),
    "committed_leader_epoch" / Since(8, Int32, default=-1),
    "metadata" / Since(8, String, nullable=8),
    "error_code" / Since(8, Int16),
)

OffsetFetchResponseTopics = Struct(
    "OffsetFetchResponseTopics",
    "name" / Field(String, 8, 9),
    "topic_id" / Since(10, Uuid),
    "partitions" / Since(8, Array(OffsetFetchResponsePartitions)),
)

OffsetFetchResponseGroup = Struct(
    "OffsetFetchResponseGroup",
    "group_id" / Since(8, String),
    "topics" / Since(8, Array(OffsetFetchResponseTopics)),
    "error_code" / Since(8, Int16),
)

OffsetFetchResponse = Response(
    ApiKey.OFFSET_FETCH,
    "throttle_time_ms" / Since(3, Int32),
    "topics" / Until(7, Array(OffsetFetchResponseTopic)),
    "error_code" / Field(Int16, 2, 7),
    "groups" / Since(8, Array(OffsetFetchResponseGroup)),
)
