"""Produce (0): append one batch per partition.

v3 brings batch format 2 and the transactional id, v8 per-record errors (KIP-467), v10 the current leader in the answer
(KIP-951), v11 TRANSACTION_ABORTABLE, v12 transactions without AddPartitionsToTxn (KIP-890), v13 topic ids (KIP-516).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
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


class PartitionProduceData(Value):
    index: Int32 = 0
    records: Records = field(default=None)


class TopicProduceData(Value):
    name: String = until(12)
    topic_id: Uuid = since(13)
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(RequestValue["ProduceResponse"], api=ApiKey.PRODUCE):
    transactional_id: String | None = since(3, default=None)
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Value):
    batch_index: Int32 = since(8)
    batch_index_error_message: String | None = since(8, default=None)


class LeaderIdAndEpoch(Value):
    leader_id: Int32 = since(10, default=-1)
    leader_epoch: Int32 = since(10, default=-1)


class PartitionProduceResponse(Value):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = since(2, default=-1)
    log_start_offset: Int64 = since(5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = since(8)
    error_message: String | None = since(8, default=None)
    current_leader: LeaderIdAndEpoch | None = since(10, tag=0)


class TopicProduceResponse(Value):
    name: String = until(12)
    topic_id: Uuid = since(13)
    partition_responses: list[PartitionProduceResponse] = []


class NodeEndpoint(Value):
    node_id: Int32 = since(10)
    host: String = since(10)
    port: Int32 = since(10)
    rack: String | None = since(10, default=None)


class ProduceResponse(ResponseValue, api=ApiKey.PRODUCE):
    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Int32 = since(1)
    node_endpoints: list[NodeEndpoint] = since(10, tag=0)
