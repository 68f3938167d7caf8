"""SASL on one connection: handshake, exchange, and re-authentication before the session ends (KIP-368)."""

import inspect
import secrets
from typing import Any

import anyio
import anyio.to_thread

from fencepost.client.core.partitioner import Random
from fencepost.client.core.sasl import OAUTHBEARER, Exchange, OAuthToken, SaslError, exchange_for
from fencepost.client.core.scram import HASHES, ScramError
from fencepost.client.errors import AuthenticationError, KafkaError, RetriableError, code_of
from fencepost.client.network.connection import Connection
from fencepost.client.network.security import SecurityConfig
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeRequest
from fencepost.protocol.messages.api36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

_NONCE_BYTES = 24
_EARLIEST, _SPREAD = 0.85, 0.10
"""The part of a session's lifetime after which it is renewed: as in Kafka's own client."""


async def authenticate(connection: Connection, config: SecurityConfig, timeout_s: float) -> float | None:
    """Authenticate; returns the session's lifetime in seconds, or None if it does not expire.

    Raises AuthenticationError when broker and client cannot agree, ConnectionLostError, RetriableError.
    """
    mechanism = config.sasl_mechanism or ""
    began = anyio.current_time()
    exchange = await _exchange(config, mechanism)
    await _handshake(connection, mechanism, timeout_s)
    message: bytes | None = exchange.first()
    lifetime_ms = 0
    while message is not None:
        response = await connection.ask(SaslAuthenticateRequest(auth_bytes=message), timeout_s, urgent=True)
        if response.error_code != ErrorCode.NONE:
            raise _rejected(connection, mechanism, response)
        lifetime_ms = response.session_lifetime_ms
        message = await _step(exchange, mechanism, response.auth_bytes, connection)
    if lifetime_ms <= 0:
        return None
    return max(0.0, lifetime_ms / 1000 - (anyio.current_time() - began))


async def keep_authenticated(
    connection: Connection, config: SecurityConfig, lifetime_s: float | None, timeout_s: float, random: Random
) -> None:
    """Renew the session before it ends, as long as the connection is open.

    Other requests are held back meanwhile. A failure closes the connection; its requests fail with the same error.
    """
    while lifetime_s is not None:
        with anyio.move_on_after(lifetime_s * (_EARLIEST + _SPREAD * random.random())):
            await connection.ended.wait()
            return
        connection.hold()
        try:
            lifetime_s = await authenticate(connection, config, timeout_s)
        except KafkaError as error:
            connection.close(f"its SASL session could not be renewed: {error}", _lasting(error))
            return
        finally:
            connection.release()


def _lasting(error: KafkaError) -> AuthenticationError | None:
    return error if isinstance(error, AuthenticationError) else None


async def _exchange(config: SecurityConfig, mechanism: str) -> Exchange:
    token = await _token(config) if mechanism == OAUTHBEARER else None
    try:
        return exchange_for(
            mechanism,
            username=config.sasl_username or "",
            password=config.sasl_password or "",
            nonce=secrets.token_urlsafe(_NONCE_BYTES),
            token=token,
        )
    except SaslError as error:
        raise AuthenticationError(f"{mechanism}: {error}") from None


async def _token(config: SecurityConfig) -> OAuthToken:
    """A fresh token. Any exception of the program's function but a KafkaError becomes an AuthenticationError."""
    assert config.sasl_oauth_token_provider is not None
    try:
        given: Any = config.sasl_oauth_token_provider()
        if inspect.isawaitable(given):
            given = await given
    except KafkaError:
        raise  # a RetriableError asks for another attempt
    except Exception as error:
        raise AuthenticationError(f"sasl_oauth_token_provider failed: {type(error).__name__}") from error
    if isinstance(given, OAuthToken):
        return given
    if isinstance(given, str):
        return OAuthToken(given)
    raise AuthenticationError("sasl_oauth_token_provider must return a str or an OAuthToken")


async def _handshake(connection: Connection, mechanism: str, timeout_s: float) -> None:
    version = connection.version_for(ApiKey.SASL_HANDSHAKE, at_least=1)
    request = SaslHandshakeRequest(mechanism=mechanism)
    response = await connection.ask(request, timeout_s, version=version, urgent=True)
    code = code_of(response.error_code)
    if code is ErrorCode.NONE:
        return
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        reason = (
            f"the broker does not support {mechanism}; it supports {', '.join(response.mechanisms) or 'no mechanism'}"
        )
    elif code is ErrorCode.ILLEGAL_SASL_STATE:
        reason = "this listener does not use SASL: set security_protocol to 'plaintext' or 'ssl'"
    else:
        reason = "the broker rejected SASL"
    raise AuthenticationError(reason, code=code, api="SaslHandshake", node=connection.node)


async def _step(exchange: Exchange, mechanism: str, challenge: Any, connection: Connection) -> bytes | None:
    """The next message. A thread computes the password's hash, because that may take long."""
    try:
        if mechanism in HASHES:
            return await anyio.to_thread.run_sync(exchange.step, bytes(challenge))
        return exchange.step(bytes(challenge))
    except (SaslError, ScramError) as error:
        raise AuthenticationError(f"{mechanism}: {error}", api="SaslAuthenticate", node=connection.node) from None


def _rejected(connection: Connection, mechanism: str, response: SaslAuthenticateResponse) -> KafkaError:
    code = code_of(response.error_code)
    reason = f"{mechanism}: {response.error_message or 'the broker rejected the authentication'}"
    kind = RetriableError if code.retriable else AuthenticationError
    broker_message = response.error_message or None
    return kind(reason, code=code, api="SaslAuthenticate", node=connection.node, broker_message=broker_message)
