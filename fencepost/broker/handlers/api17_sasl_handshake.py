"""SaslHandshake (17): choose a SASL mechanism.

v0-1 are served. After v0 the client sends the mechanism's messages without headers, after v1 in SaslAuthenticate. On a
listener without SASL both are rejected with ILLEGAL_SASL_STATE, as in Kafka; but another broker of the cluster may log
in there.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.login import delay
from fencepost.broker.ports import Broker
from fencepost.broker.security.sasl.session import SaslSession
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

HEADERS_SINCE = 1


async def handle(node: Broker, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    session = context.session
    if session.sasl is None and request.mechanism in node.place.mechanisms:
        delay_s = node.config.connection_failed_authentication_delay_ms / 1000
        session.sasl = SaslSession(node.place.mechanisms, delay_s)
    if session.sasl is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    sasl = session.sasl
    code = sasl.handshake(request.mechanism, context.api_version >= HEADERS_SINCE, node.clock.monotonic())
    session.guarded = sasl.needs_guard and session.security_protocol.sasl
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        await delay(sasl)
    mechanisms = [] if code is ErrorCode.ILLEGAL_SASL_STATE else sasl.mechanisms
    return SaslHandshakeResponse(error_code=code, mechanisms=mechanisms)
