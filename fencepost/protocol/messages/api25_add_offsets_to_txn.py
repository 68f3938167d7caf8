"""AddOffsetsToTxn (25): a group's offsets partition joins a transaction."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, Int64, RequestValue, ResponseValue, String


class AddOffsetsToTxnRequest(RequestValue["AddOffsetsToTxnResponse"], api=ApiKey.ADD_OFFSETS_TO_TXN):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(ResponseValue, api=ApiKey.ADD_OFFSETS_TO_TXN):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
