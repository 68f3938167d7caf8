"""EndTxn (26): commit or abort.

v2 answers PRODUCER_FENCED (KIP-588), v4 TRANSACTION_ABORTABLE, v5 bumps the epoch and answers the new one (KIP-890).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int16, Int32, Int64, RequestValue, ResponseValue, String, since


class EndTxnRequest(RequestValue["EndTxnResponse"], api=ApiKey.END_TXN):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(ResponseValue, api=ApiKey.END_TXN):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = since(5, default=-1)
    producer_epoch: Int16 = since(5, default=-1)
