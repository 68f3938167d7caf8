"""SaslAuthenticate (36): the exchange of the chosen mechanism."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bytes, Int16, Int64, RequestValue, ResponseValue, String, since


class SaslAuthenticateRequest(RequestValue["SaslAuthenticateResponse"], api=ApiKey.SASL_AUTHENTICATE):
    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(ResponseValue, api=ApiKey.SASL_AUTHENTICATE):
    error_code: Int16 = 0
    error_message: String | None = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Int64 = since(1)
