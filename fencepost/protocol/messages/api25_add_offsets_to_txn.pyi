"""Written by tests/architecture/message_stubs.py from the declarations in api25_add_offsets_to_txn.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue

class AddOffsetsToTxnRequest(RequestValue[AddOffsetsToTxnResponse]):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    def __init__(
        self, *, transactional_id: str = ..., producer_id: int = ..., producer_epoch: int = ..., group_id: str = ...
    ) -> None: ...

class AddOffsetsToTxnResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ...) -> None: ...
