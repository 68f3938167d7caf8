"""EndTxn (26): commit or abort.

v2 answers PRODUCER_FENCED (KIP-588), v4 TRANSACTION_ABORTABLE, v5 bumps the epoch and answers the new one (KIP-890).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int16, Int32, Int64, Request, Response, Since, String

EndTxnRequest = Request(
    ApiKey.END_TXN,
    "transactional_id" / String,
    "producer_id" / Int64,
    "producer_epoch" / Int16,
    "committed" / Bool,
)

EndTxnResponse = Response(
    ApiKey.END_TXN,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "producer_id" / Since(5, Int64, default=-1),
    "producer_epoch" / Since(5, Int16, default=-1),
)
