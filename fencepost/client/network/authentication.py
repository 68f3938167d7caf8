"""SASL on one connection: handshake, exchange, and re-authentication before the session ends (KIP-368)."""

import inspect
from typing import Any

import anyio

from fencepost.client.core.partitioner import Random
from fencepost.client.core.sasl import OAUTHBEARER
from fencepost.client.errors import AuthenticationError, KafkaError
from fencepost.client.network.connection import Connection
from fencepost.client.network.security import SecurityConfig, exchange_of
from fencepost.protocol.sasl_login import RENEW_AFTER, RENEW_SPREAD, log_in
from fencepost.protocol.scram import HASHES


async def authenticate(connection: Connection, config: SecurityConfig, timeout_s: float) -> float | None:
    """Authenticate; returns the session's lifetime in seconds, or None if it does not expire.

    Raises AuthenticationError when broker and client cannot agree, ConnectionLostError, RetriableError.
    """
    mechanism = config.sasl_mechanism or ""
    began = anyio.current_time()
    exchange = exchange_of(config, await _given_token(config) if mechanism == OAUTHBEARER else None)
    # A thread computes SCRAM's hash of the password, because that may take long.
    steps = log_in(connection.session, mechanism, exchange)
    await connection.converse(steps, timeout_s, urgent=True, in_thread=mechanism in HASHES)
    lifetime_ms = connection.session.lifetime_ms
    return max(0.0, lifetime_ms / 1000 - (anyio.current_time() - began)) if lifetime_ms else None


async def keep_authenticated(
    connection: Connection, config: SecurityConfig, lifetime_s: float | None, timeout_s: float, random: Random
) -> None:
    """Renew the session before it ends, as long as the connection is open.

    Other requests are held back meanwhile. A failure closes the connection; its requests fail with the same error.
    """
    while lifetime_s is not None:
        with anyio.move_on_after(lifetime_s * (RENEW_AFTER + RENEW_SPREAD * random.random())):
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


async def _given_token(config: SecurityConfig) -> Any:
    """The token provider's result. Any exception of it but a KafkaError becomes an AuthenticationError."""
    assert config.sasl_oauth_token_provider is not None
    try:
        given: Any = config.sasl_oauth_token_provider()
        return await given if inspect.isawaitable(given) else given
    except KafkaError:
        raise  # a RetriableError asks for another attempt
    except Exception as error:
        raise AuthenticationError(f"sasl_oauth_token_provider failed: {type(error).__name__}") from error
