"""ListTransactions (66): transactional ids by state and producer (KIP-664).

v1 filters by duration (KIP-994), v2 by a pattern of the id (KIP-1152).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, Int64, RequestValue, ResponseValue, String, Value, since


class ListTransactionsRequest(RequestValue["ListTransactionsResponse"], api=ApiKey.LIST_TRANSACTIONS):
    state_filters: list[String] = []
    producer_id_filters: list[Int64] = []
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: String | None = since(2, default=None)


class TransactionState(Value):
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(ResponseValue, api=ApiKey.LIST_TRANSACTIONS):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String] = []
    transaction_states: list[TransactionState] = []
