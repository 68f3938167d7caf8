"""AddOffsetsToTxn (25): a group's offsets partition joins a transaction."""

from fencepost.protocol.schema import Int16, Int32, Int64, Request, Response, String

VERSIONS = (0, 4)
FLEXIBLE = 3

AddOffsetsToTxnRequest = Request(
    25,
    "AddOffsetsToTxnRequest",
    VERSIONS,
    FLEXIBLE,
    "transactional_id" / String,
    "producer_id" / Int64,
    "producer_epoch" / Int16,
    "group_id" / String,
)

AddOffsetsToTxnResponse = Response(
    25,
    "AddOffsetsToTxnResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
)
