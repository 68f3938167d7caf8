"""Written by tests/architecture/message_stubs.py from the declarations in api26_end_txn.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue

class EndTxnRequest(RequestValue[EndTxnResponse]):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    def __init__(
        self, *, transactional_id: str = ..., producer_id: int = ..., producer_epoch: int = ..., committed: bool = ...
    ) -> None: ...

class EndTxnResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    def __init__(
        self, *, throttle_time_ms: int = ..., error_code: int = ..., producer_id: int = ..., producer_epoch: int = ...
    ) -> None: ...
