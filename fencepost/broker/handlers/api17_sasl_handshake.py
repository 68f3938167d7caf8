"""SaslHandshake (17): choosing an authentication mechanism; out of place on a PLAINTEXT listener.

v0-1 are served, and both refused with ILLEGAL_SASL_STATE, as Kafka does on a listener without SASL.
"""

from typing import TYPE_CHECKING, Any

from fencepost.broker.network.context import RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node


def handle(_node: "Node", _request: Any, _context: RequestContext) -> Any:
    """Refuse: there is no login to begin."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
