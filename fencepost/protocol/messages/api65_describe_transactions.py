"""DescribeTransactions (65): the coordinator's state of transactional ids (KIP-664).

Tag 1000 of the request and of each state is fencepost's (docs/decisions/0016-tagged-fields.md); Kafka skips it.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Int16, Int32, Int64, Request, Response, Since, String, Struct

DescribeTransactionsRequest = Request(
    ApiKey.DESCRIBE_TRANSACTIONS,
    "transactional_ids" / Array(String),
    "explain" / Since(0, Bool, tag=1000),
)

TopicData = Struct(
    "TopicData",
    "topic" / String,
    "partitions" / Array(Int32),
)

HistoryEvent = Struct(
    "HistoryEvent",
    "time_ms" / Int64,
    "last_time_ms" / Int64,
    "times" / Int32,
    "reason" / String,
    "error_code" / Int16,
    "client_id" / String,
    "client_host" / String,
    "text" / String,
)

TransactionHistory = Struct(
    "TransactionHistory",
    "owner_client_id" / String,
    "owner_host" / String,
    "writer_client_id" / String,
    "writer_host" / String,
    "lines" / Array(HistoryEvent),
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
    "history" / Since(0, TransactionHistory, tag=1000),
)

DescribeTransactionsResponse = Response(
    ApiKey.DESCRIBE_TRANSACTIONS,
    "throttle_time_ms" / Int32,
    "transaction_states" / Array(TransactionState),
)
