"""TxnOffsetCommit (28): offsets that become visible when the transaction commits.

v3 brings member, generation and instance (KIP-447). From v5 the broker adds the group's partition to the transaction
(KIP-890). v6 names topics by id (KIP-1319).
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

TxnOffsetCommitRequestPartition = Struct(
    "TxnOffsetCommitRequestPartition",
    "partition_index" / Int32,
    "committed_offset" / Int64,
    "committed_leader_epoch" / Since(2, Int32, default=-1),
    "committed_metadata" / Field(String, nullable=0),
)

TxnOffsetCommitRequestTopic = Struct(
    "TxnOffsetCommitRequestTopic",
    "name" / Until(5, String),
    "topic_id" / Since(6, Uuid),
    "partitions" / Array(TxnOffsetCommitRequestPartition),
)

TxnOffsetCommitRequest = Request(
    ApiKey.TXN_OFFSET_COMMIT,
    "transactional_id" / String,
    "group_id" / String,
    "producer_id" / Int64,
    "producer_epoch" / Int16,
    "generation_id_or_member_epoch" / Since(3, Int32, default=-1),
    "member_id" / Since(3, String),
    "group_instance_id" / Since(3, String, default=None, nullable=3),
    "topics" / Array(TxnOffsetCommitRequestTopic),
)

TxnOffsetCommitResponsePartition = Struct(
    "TxnOffsetCommitResponsePartition",
    "partition_index" / Int32,
    "error_code" / Int16,
)

TxnOffsetCommitResponseTopic = Struct(
    "TxnOffsetCommitResponseTopic",
    "name" / Until(5, String),
    "topic_id" / Since(6, Uuid),
    "partitions" / Array(TxnOffsetCommitResponsePartition),
)

TxnOffsetCommitResponse = Response(
    ApiKey.TXN_OFFSET_COMMIT,
    "throttle_time_ms" / Int32,
    "topics" / Array(TxnOffsetCommitResponseTopic),
)
