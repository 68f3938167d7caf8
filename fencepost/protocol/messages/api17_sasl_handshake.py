"""SaslHandshake (17): choose an authentication mechanism."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, RequestValue, ResponseValue, String


class SaslHandshakeRequest(RequestValue["SaslHandshakeResponse"], api=ApiKey.SASL_HANDSHAKE):
    mechanism: String = ""


class SaslHandshakeResponse(ResponseValue, api=ApiKey.SASL_HANDSHAKE):
    error_code: Int16 = 0
    mechanisms: list[String] = []
