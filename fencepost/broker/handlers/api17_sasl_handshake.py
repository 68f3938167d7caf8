"""SaslHandshake (17): choosing an authentication mechanism; out of place on a PLAINTEXT listener.

v0-1 are served, and both refused with ILLEGAL_SASL_STATE, as Kafka does on a listener without SASL.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(_node: object, _request: SaslHandshakeRequest, _context: RequestContext) -> SaslHandshakeResponse:
    """Refuse: there is no login to begin."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
