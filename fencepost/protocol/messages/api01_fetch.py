"""Fetch (1): read batches from partitions, and wait for them up to max_wait.

v4 brings isolation levels and the aborted list (KIP-98), v7 fetch sessions (KIP-227), v10 zstd, v12 tagged fields and
divergence, v13 topic ids (KIP-516), v15 the replica state (KIP-903), v16 node endpoints (KIP-951).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    RequestValue,
    ResponseValue,
    String,
    Uuid,
    Value,
    field,
    since,
    until,
)


class ReplicaState(Value):
    replica_id: Int32 = since(15, default=-1)
    replica_epoch: Int64 = since(15, default=-1)


class FetchPartition(Value):
    partition: Int32 = 0
    current_leader_epoch: Int32 = since(9, default=-1)
    fetch_offset: Int64 = 0
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1)
    partition_max_bytes: Int32 = 0
    replica_directory_id: Uuid = since(17, tag=0)
    high_watermark: Int64 = since(18, default=9223372036854775807, tag=1)


class FetchTopic(Value):
    topic: String = until(12)
    topic_id: Uuid = since(13)
    partitions: list[FetchPartition] = []


class ForgottenTopic(Value):
    topic: String = since(7, until=12)
    topic_id: Uuid = since(13)
    partitions: list[Int32] = since(7)


class FetchRequest(RequestValue["FetchResponse"], api=ApiKey.FETCH):
    cluster_id: String | None = since(12, default=None, tag=0)
    replica_id: Int32 = until(14, default=-1)
    replica_state: ReplicaState | None = since(15, tag=1)
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = since(3, default=2147483647)
    isolation_level: Int8 = since(4)
    session_id: Int32 = since(7)
    session_epoch: Int32 = since(7, default=-1)
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = since(7)
    rack_id: String = since(11)


class EpochEndOffset(Value):
    epoch: Int32 = since(12, default=-1)
    end_offset: Int64 = since(12, default=-1)


class LeaderIdAndEpoch(Value):
    leader_id: Int32 = since(12, default=-1)
    leader_epoch: Int32 = since(12, default=-1)


class SnapshotId(Value):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Value):
    producer_id: Int64 = since(4)
    first_offset: Int64 = since(4)


class PartitionData(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = since(4, default=-1)
    log_start_offset: Int64 = since(5, default=-1)
    diverging_epoch: EpochEndOffset | None = since(12, tag=0)
    current_leader: LeaderIdAndEpoch | None = since(12, tag=1)
    snapshot_id: SnapshotId | None = since(12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = since(4, default=[])
    preferred_read_replica: Int32 = since(11, default=-1)
    records: Records = field(default=None)


class FetchableTopicResponse(Value):
    topic: String = until(12)
    topic_id: Uuid = since(13)
    partitions: list[PartitionData] = []


class NodeEndpoint(Value):
    node_id: Int32 = since(16)
    host: String = since(16)
    port: Int32 = since(16)
    rack: String | None = since(16, default=None)


class FetchResponse(ResponseValue, api=ApiKey.FETCH):
    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = since(7)
    session_id: Int32 = since(7)
    responses: list[FetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = since(16, tag=0)
