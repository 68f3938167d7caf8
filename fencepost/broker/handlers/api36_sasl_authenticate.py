"""SaslAuthenticate (36): the messages of the chosen SASL mechanism.

v0-2 are served. v1 brings the session's lifetime (KIP-368). Without a login in progress all are rejected with
ILLEGAL_SASL_STATE, as in Kafka.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.login import authenticate, log_refusal
from fencepost.broker.ports import Broker
from fencepost.broker.security.sasl.exchange import LoginRefused
from fencepost.broker.security.sasl.session import State
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


async def handle(node: Broker, request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Pass the message to the mechanism. After a refusal the connection is closed."""
    sasl = context.session.sasl
    if sasl is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="This listener has no SASL; connect with security.protocol=PLAINTEXT",
        )
    if sasl.state is not State.EXCHANGE:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    try:
        step = await authenticate(context.session, bytes(request.auth_bytes), node.clock)
    except LoginRefused as refused:
        log_refusal(context.session)
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=refused.message)
    return SaslAuthenticateResponse(error_message=None, auth_bytes=step.challenge, session_lifetime_ms=step.lifetime_ms)
