"""Finds the security protocol of a listener that closes connections without an error."""

import ssl

import anyio

from fencepost.client.errors import KafkaError
from fencepost.client.network.connection import Connection
from fencepost.client.network.security import PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL
from fencepost.client.network.wire import Dial, PlainWire, TlsWire, Wire
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeRequest

_TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 20
_NO_MECHANISM = "NONE"
"""No such mechanism exists: the broker rejects it as unknown, or because the listener does not use SASL."""


async def security_protocol_of(dial: Dial, address: tuple[str, int], client_id: str) -> str | None:
    """The listener's security protocol, found by trying each one; None if none works.

    The client sends no secret, and uses nothing of the responses but their kind.
    """
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    for context in (None, unchecked):
        with anyio.move_on_after(_TIMEOUT_S):
            try:
                sasl = await _uses_sasl(dial, address, client_id, context)
            except (KafkaError, OSError):
                continue  # another protocol
            if context is None:
                return SASL_PLAINTEXT if sasl else PLAINTEXT
            return SASL_SSL if sasl else SSL
    return None


async def _uses_sasl(dial: Dial, address: tuple[str, int], client_id: str, context: ssl.SSLContext | None) -> bool:
    """Whether it uses SASL, behind TLS if `context` is given. Raises KafkaError, OSError for other listeners."""
    sock = await dial(*address, _TIMEOUT_S)
    wire: Wire = PlainWire(sock)
    try:
        if context is not None:
            wire = tls = TlsWire(sock, context, address[0])
            await tls.handshake()
        connection = Connection(wire, address, None, client_id, _MOST_BYTES)
        async with anyio.create_task_group() as nursery:
            nursery.start_soon(connection.run)
            try:
                await connection.negotiate(_TIMEOUT_S)
                if ApiKey.SASL_HANDSHAKE not in connection.session.versions:
                    return False
                response = await connection.ask(SaslHandshakeRequest(mechanism=_NO_MECHANISM), _TIMEOUT_S)
            finally:
                connection.close("the listener's protocol is known")
        return bool(response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        wire.close()
