"""InitProducerId (22): a producer id and epoch; with a transactional id, the fence against older producers.

v3 lets a producer bump its own epoch (KIP-360), v4 answers PRODUCER_FENCED (KIP-588), v5 TRANSACTION_ABORTABLE, v6
brings two-phase commit (KIP-939) and may still change.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Field, Int16, Int32, Int64, Request, Response, Since, String

InitProducerIdRequest = Request(
    ApiKey.INIT_PRODUCER_ID,
    "transactional_id" / Field(String, nullable=0),
    "transaction_timeout_ms" / Int32,
    "producer_id" / Since(3, Int64, default=-1),
    "producer_epoch" / Since(3, Int16, default=-1),
    "enable2_pc" / Since(6, Bool),
    "keep_prepared_txn" / Since(6, Bool),
)

InitProducerIdResponse = Response(
    ApiKey.INIT_PRODUCER_ID,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "producer_id" / Field(Int64, default=-1),
    "producer_epoch" / Int16,
    "ongoing_txn_producer_id" / Since(6, Int64, default=-1),
    "ongoing_txn_producer_epoch" / Since(6, Int16, default=-1),
)
