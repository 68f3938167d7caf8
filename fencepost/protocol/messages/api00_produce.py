"""Produce (0): append one batch per partition.

v3 brings batch format 2 and the transactional id, v8 per-record errors (KIP-467), v10 the current leader in the answer
(KIP-951), v11 TRANSACTION_ABORTABLE, v12 transactions without AddPartitionsToTxn (KIP-890), v13 topic ids (KIP-516).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Array,
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

PartitionProduceData = Struct(
    "PartitionProduceData",
    "index" / Int32,
    "records" / Records,
)

TopicProduceData = Struct(
    "TopicProduceData",
    "name" / Until(12, String),
    "topic_id" / Since(13, Uuid),
    "partition_data" / Array(PartitionProduceData),
)

ProduceRequest = Request(
    ApiKey.PRODUCE,
    "transactional_id" / Since(3, String, default=None, nullable=3),
    "acks" / Int16,
    "timeout_ms" / Int32,
    "topic_data" / Array(TopicProduceData),
)

BatchIndexAndErrorMessage = Struct(
    "BatchIndexAndErrorMessage",
    "batch_index" / Since(8, Int32),
    "batch_index_error_message" / Since(8, String, default=None, nullable=8),
)

LeaderIdAndEpoch = Struct(
    "LeaderIdAndEpoch",
    "leader_id" / Since(10, Int32, default=-1),
    "leader_epoch" / Since(10, Int32, default=-1),
)

PartitionProduceResponse = Struct(
    "PartitionProduceResponse",
    "index" / Int32,
    "error_code" / Int16,
    "base_offset" / Int64,
    "log_append_time_ms" / Since(2, Int64, default=-1),
    "log_start_offset" / Since(5, Int64, default=-1),
    "record_errors" / Since(8, Array(BatchIndexAndErrorMessage)),
    "error_message" / Since(8, String, default=None, nullable=8),
    "current_leader" / Since(10, LeaderIdAndEpoch, tag=0),
)

TopicProduceResponse = Struct(
    "TopicProduceResponse",
    "name" / Until(12, String),
    "topic_id" / Since(13, Uuid),
    "partition_responses" / Array(PartitionProduceResponse),
)

NodeEndpoint = Struct(
    "NodeEndpoint",
    "node_id" / Since(10, Int32),
    "host" / Since(10, String),
    "port" / Since(10, Int32),
    "rack" / Since(10, String, default=None, nullable=10),
)

ProduceResponse = Response(
    ApiKey.PRODUCE,
    "responses" / Array(TopicProduceResponse),
    "throttle_time_ms" / Since(1, Int32),
    "node_endpoints" / Since(10, Array(NodeEndpoint), tag=0),
)
