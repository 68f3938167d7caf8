"""AddPartitionsToTxn (24): partitions join a transaction.

v0-3 come from clients, one transaction each; v4 and v5 from brokers, many at once and perhaps only to verify (KIP-890).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    RequestValue,
    ResponseValue,
    String,
    Value,
    since,
    until,
)


class AddPartitionsToTxnTopic(Value):
    name: String = ""
    partitions: list[Int32] = []


class AddPartitionsToTxnTransaction(Value):
    transactional_id: String = since(4)
    producer_id: Int64 = since(4)
    producer_epoch: Int16 = since(4)
    verify_only: Bool = since(4)
    topics: list[AddPartitionsToTxnTopic] = since(4)


class AddPartitionsToTxnRequest(RequestValue["AddPartitionsToTxnResponse"], api=ApiKey.ADD_PARTITIONS_TO_TXN):
    transactions: list[AddPartitionsToTxnTransaction] = since(4)
    v3_and_below_transactional_id: String = until(3)
    v3_and_below_producer_id: Int64 = until(3)
    v3_and_below_producer_epoch: Int16 = until(3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = until(3)


class AddPartitionsToTxnPartitionResult(Value):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Value):
    name: String = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnResult(Value):
    transactional_id: String = since(4)
    topic_results: list[AddPartitionsToTxnTopicResult] = since(4)


class AddPartitionsToTxnResponse(ResponseValue, api=ApiKey.ADD_PARTITIONS_TO_TXN):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(4)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = until(3)
