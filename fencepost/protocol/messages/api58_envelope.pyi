"""Written by tests/architecture/message_stubs.py from the declarations in api58_envelope.py."""

from fencepost.protocol.schema import MessageValue, RequestValue, ResponseValue

class EnvelopeRequest(RequestValue[EnvelopeResponse]):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes
    def __init__(
        self, *, request_data: bytes = ..., request_principal: bytes | None = ..., client_host_address: bytes = ...
    ) -> None: ...

class EnvelopeResponse(ResponseValue):
    response_data: bytes | None
    error_code: int
    def __init__(self, *, response_data: bytes | None = ..., error_code: int = ...) -> None: ...

class DefaultPrincipalData(MessageValue):
    type: str
    name: str
    token_authenticated: bool
    def __init__(self, *, type: str = ..., name: str = ..., token_authenticated: bool = ...) -> None: ...
