"""InitProducerId (22): a producer id and epoch; with a transactional id, the fence against older producers.

v3 lets a producer bump its own epoch (KIP-360), v4 answers PRODUCER_FENCED (KIP-588), v5 TRANSACTION_ABORTABLE, v6
brings two-phase commit (KIP-939) and may still change.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int16, Int32, Int64, RequestValue, ResponseValue, String, since


class InitProducerIdRequest(RequestValue["InitProducerIdResponse"], api=ApiKey.INIT_PRODUCER_ID):
    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable2_pc: Bool = since(6)
    keep_prepared_txn: Bool = since(6)


class InitProducerIdResponse(ResponseValue, api=ApiKey.INIT_PRODUCER_ID):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)
