"""Fetch (1): read batches from partitions, and wait for them up to max_wait.

v4 brings isolation levels and the aborted list (KIP-98), v7 fetch sessions (KIP-227), v10 zstd, v12 tagged fields and
divergence, v13 topic ids (KIP-516), v15 the replica state (KIP-903), v16 node endpoints (KIP-951).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Array,
    Field,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    Request,
    Response,
    Since,
    String,
    Struct,
    Until,
    Uuid,
)

ReplicaState = Struct(
    "ReplicaState",
    "replica_id" / Since(15, Int32, default=-1),
    "replica_epoch" / Since(15, Int64, default=-1),
)

FetchPartition = Struct(
    "FetchPartition",
    "partition" / Int32,
    "current_leader_epoch" / Since(9, Int32, default=-1),
    "fetch_offset" / Int64,
    "last_fetched_epoch" / Since(12, Int32, default=-1),
    "log_start_offset" / Since(5, Int64, default=-1),
    "partition_max_bytes" / Int32,
    "replica_directory_id" / Since(17, Uuid, tag=0),
    "high_watermark" / Since(18, Int64, default=9223372036854775807, tag=1),
)

FetchTopic = Struct(
    "FetchTopic",
    "topic" / Until(12, String),
    "topic_id" / Since(13, Uuid),
    "partitions" / Array(FetchPartition),
)

ForgottenTopic = Struct(
    "ForgottenTopic",
    "topic" / Field(String, 7, 12),
    "topic_id" / Since(13, Uuid),
    "partitions" / Since(7, Array(Int32)),
)

FetchRequest = Request(
    ApiKey.FETCH,
    "cluster_id" / Since(12, String, default=None, nullable=12, tag=0),
    "replica_id" / Until(14, Int32, default=-1),
    "replica_state" / Since(15, ReplicaState, tag=1),
    "max_wait_ms" / Int32,
    "min_bytes" / Int32,
    "max_bytes" / Since(3, Int32, default=2147483647),
    "isolation_level" / Since(4, Int8),
    "session_id" / Since(7, Int32),
    "session_epoch" / Since(7, Int32, default=-1),
    "topics" / Array(FetchTopic),
    "forgotten_topics_data" / Since(7, Array(ForgottenTopic)),
    "rack_id" / Since(11, String),
)

EpochEndOffset = Struct(
    "EpochEndOffset",
    "epoch" / Since(12, Int32, default=-1),
    "end_offset" / Since(12, Int64, default=-1),
)

LeaderIdAndEpoch = Struct(
    "LeaderIdAndEpoch",
    "leader_id" / Since(12, Int32, default=-1),
    "leader_epoch" / Since(12, Int32, default=-1),
)

SnapshotId = Struct(
    "SnapshotId",
    "end_offset" / Field(Int64, default=-1),
    "epoch" / Field(Int32, default=-1),
)

AbortedTransaction = Struct(
    "AbortedTransaction",
    "producer_id" / Since(4, Int64),
    "first_offset" / Since(4, Int64),
)

PartitionData = Struct(
    "PartitionData",
    "partition_index" / Int32,
    "error_code" / Int16,
    "high_watermark" / Int64,
    "last_stable_offset" / Since(4, Int64, default=-1),
    "log_start_offset" / Since(5, Int64, default=-1),
    "diverging_epoch" / Since(12, EpochEndOffset, tag=0),
    "current_leader" / Since(12, LeaderIdAndEpoch, tag=1),
    "snapshot_id" / Since(12, SnapshotId, tag=2),
    "aborted_transactions" / Since(4, Array(AbortedTransaction), nullable=4),
    "preferred_read_replica" / Since(11, Int32, default=-1),
    "records" / Records,
)

FetchableTopicResponse = Struct(
    "FetchableTopicResponse",
    "topic" / Until(12, String),
    "topic_id" / Since(13, Uuid),
    "partitions" / Array(PartitionData),
)

NodeEndpoint = Struct(
    "NodeEndpoint",
    "node_id" / Since(16, Int32),
    "host" / Since(16, String),
    "port" / Since(16, Int32),
    "rack" / Since(16, String, default=None, nullable=16),
)

FetchResponse = Response(
    ApiKey.FETCH,
    "throttle_time_ms" / Since(1, Int32),
    "error_code" / Since(7, Int16),
    "session_id" / Since(7, Int32),
    "responses" / Array(FetchableTopicResponse),
    "node_endpoints" / Since(16, Array(NodeEndpoint), tag=0),
)
