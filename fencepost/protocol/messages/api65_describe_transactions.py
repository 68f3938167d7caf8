"""DescribeTransactions (65): what the coordinator knows of transactional ids (KIP-664)."""

from fencepost.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct

VERSIONS = (0, 0)
FLEXIBLE = 0

DescribeTransactionsRequest = Request(
    65,
    "DescribeTransactionsRequest",
    VERSIONS,
    FLEXIBLE,
    "transactional_ids" / Array(String),
)

TopicData = Struct(
    "TopicData",
    "topic" / String,
    "partitions" / Array(Int32),
)

TransactionState = Struct(
    "TransactionState",
    "error_code" / Int16,
    "transactional_id" / String,
    "transaction_state" / String,
    "transaction_timeout_ms" / Int32,
    "transaction_start_time_ms" / Int64,
    "producer_id" / Int64,
    "producer_epoch" / Int16,
    "topics" / Array(TopicData),
)

DescribeTransactionsResponse = Response(
    65,
    "DescribeTransactionsResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Int32,
    "transaction_states" / Array(TransactionState),
)
