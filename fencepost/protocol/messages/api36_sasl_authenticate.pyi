"""Written by tests/architecture/message_stubs.py from the declarations in api36_sasl_authenticate.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue

class SaslAuthenticateRequest(RequestValue[SaslAuthenticateResponse]):
    auth_bytes: bytes
    def __init__(self, *, auth_bytes: bytes = ...) -> None: ...

class SaslAuthenticateResponse(ResponseValue):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        auth_bytes: bytes = ...,
        session_lifetime_ms: int = ...,
    ) -> None: ...
