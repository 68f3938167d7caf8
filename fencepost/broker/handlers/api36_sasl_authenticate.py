"""SaslAuthenticate (36): SASL authentication; not valid on a PLAINTEXT listener.

v0-2 are served, and all are rejected with ILLEGAL_SASL_STATE, as Kafka does on a listener without SASL.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(_node: object, _request: SaslAuthenticateRequest, _context: RequestContext) -> SaslAuthenticateResponse:
    """Reject the request: this listener has no SASL."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="This listener has no SASL; connect with security.protocol=PLAINTEXT",
    )
