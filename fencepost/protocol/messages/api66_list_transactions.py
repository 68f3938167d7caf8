"""ListTransactions (66): transactional ids by state and producer (KIP-664).

v1 filters by duration (KIP-994), v2 by a pattern of the id (KIP-1152).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Int16, Int32, Int64, Request, Response, Since, String, Struct

ListTransactionsRequest = Request(
    ApiKey.LIST_TRANSACTIONS,
    "state_filters" / Array(String),
    "producer_id_filters" / Array(Int64),
    "duration_filter" / Since(1, Int64, default=-1),
    "transactional_id_pattern" / Since(2, String, default=None, nullable=2),
)

TransactionState = Struct(
    "TransactionState",
    "transactional_id" / String,
    "producer_id" / Int64,
    "transaction_state" / String,
)

ListTransactionsResponse = Response(
    ApiKey.LIST_TRANSACTIONS,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "unknown_state_filters" / Array(String),
    "transaction_states" / Array(TransactionState),
)
