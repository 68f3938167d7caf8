"""Written by tests/architecture/message_stubs.py from the declarations in api17_sasl_handshake.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue

class SaslHandshakeRequest(RequestValue[SaslHandshakeResponse]):
    mechanism: str
    def __init__(self, *, mechanism: str = ...) -> None: ...

class SaslHandshakeResponse(ResponseValue):
    error_code: int
    mechanisms: list[str]
    def __init__(self, *, error_code: int = ..., mechanisms: list[str] = ...) -> None: ...
