"""AddPartitionsToTxn (24): partitions join a transaction.

v0-3 come from clients, one transaction each; v4 and v5 from brokers, many at once and perhaps only to verify (KIP-890).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Int16, Int32, Int64, Request, Response, Since, String, Struct, Until

AddPartitionsToTxnTopic = Struct(
    "AddPartitionsToTxnTopic",
    "name" / String,
    "partitions" / Array(Int32),
)

AddPartitionsToTxnTransaction = Struct(
    "AddPartitionsToTxnTransaction",
    "transactional_id" / Since(4, String),
    "producer_id" / Since(4, Int64),
    "producer_epoch" / Since(4, Int16),
    "verify_only" / Since(4, Bool),
    "topics" / Since(4, Array(AddPartitionsToTxnTopic)),
)

AddPartitionsToTxnRequest = Request(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    "transactions" / Since(4, Array(AddPartitionsToTxnTransaction)),
    "v3_and_below_transactional_id" / Until(3, String),
    "v3_and_below_producer_id" / Until(3, Int64),
    "v3_and_below_producer_epoch" / Until(3, Int16),
    "v3_and_below_topics" / Until(3, Array(AddPartitionsToTxnTopic)),
)

AddPartitionsToTxnPartitionResult = Struct(
    "AddPartitionsToTxnPartitionResult",
    "partition_index" / Int32,
    "partition_error_code" / Int16,
)

AddPartitionsToTxnTopicResult = Struct(
    "AddPartitionsToTxnTopicResult",
    "name" / String,
    "results_by_partition" / Array(AddPartitionsToTxnPartitionResult),
)

AddPartitionsToTxnResult = Struct(
    "AddPartitionsToTxnResult",
    "transactional_id" / Since(4, String),
    "topic_results" / Since(4, Array(AddPartitionsToTxnTopicResult)),
)

AddPartitionsToTxnResponse = Response(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    "throttle_time_ms" / Int32,
    "error_code" / Since(4, Int16),
    "results_by_transaction" / Since(4, Array(AddPartitionsToTxnResult)),
    "results_by_topic_v3_and_below" / Until(3, Array(AddPartitionsToTxnTopicResult)),
)
