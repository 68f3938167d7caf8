"""Written by tests/architecture/message_stubs.py from the declarations in api64_unregister_broker.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue

class UnregisterBrokerRequest(RequestValue[UnregisterBrokerResponse]):
    broker_id: int
    def __init__(self, *, broker_id: int = ...) -> None: ...

class UnregisterBrokerResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    def __init__(
        self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ...
    ) -> None: ...
