"""SaslHandshake (17): choose a SASL mechanism; not valid on a PLAINTEXT listener.

v0-1 are served, and both are rejected with ILLEGAL_SASL_STATE, as Kafka does on a listener without SASL.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(_node: object, _request: SaslHandshakeRequest, _context: RequestContext) -> SaslHandshakeResponse:
    """Reject the request: this listener has no SASL."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
