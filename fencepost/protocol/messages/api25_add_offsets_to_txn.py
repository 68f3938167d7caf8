"""AddOffsetsToTxn (25): a group's offsets partition joins a transaction."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, Int64, Request, Response, String

AddOffsetsToTxnRequest = Request(
    ApiKey.ADD_OFFSETS_TO_TXN,
    "transactional_id" / String,
    "producer_id" / Int64,
    "producer_epoch" / Int16,
    "group_id" / String,
)

AddOffsetsToTxnResponse = Response(
    ApiKey.ADD_OFFSETS_TO_TXN,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
)
