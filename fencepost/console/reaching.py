"""How a program in a broker's process reaches that broker: as a client, by one of its listeners."""

import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import trio

from fencepost.broker.config.broker_config import BrokerConfig, ConfigError
from fencepost.broker.config.listeners import ClientListener
from fencepost.broker.network.context import Endpoint
from fencepost.client.core.sasl import PASSWORD_MECHANISMS
from fencepost.client.network.wire import Dial, open_socket

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 5000


class Reached(NamedTuple):
    """A listener of the broker, and the address at which the process itself reaches it."""

    listener: ClientListener
    address: Endpoint


class OwnClient(NamedTuple):
    """A client of this very broker: its configuration under Kafka's names, and how it opens sockets.

    Users log in by one of `mechanisms`; there is no login if there are none. `bootstrap` is what others connect to.
    """

    config: dict[str, Any]
    mechanisms: tuple[str, ...]
    bootstrap: Endpoint
    dial: Dial


def own_client(config: BrokerConfig, endpoints: dict[str, Endpoint], client_id: str, setting: str) -> OwnClient:
    """A client of a broker that listens at `endpoints`, for what `setting` begins.

    A listener with SASL is preferred: there the users log in, and have their own rights. Raises ConfigError if no
    listener can be used.
    """
    found = reached_listener(config, endpoints, setting)
    client: dict[str, Any] = {
        "bootstrap.servers": str(found.address),
        "client.id": client_id,
        "security.protocol": found.listener.protocol.name,
        "request.timeout.ms": TIMEOUT_MS,
        "default.api.timeout.ms": TIMEOUT_MS,
    }
    if found.listener.protocol.tls:
        client["ssl.context"] = _own_context()
    enabled = config.of_listener(found.listener.name, "sasl.enabled.mechanisms")
    mechanisms = tuple(one for one in PASSWORD_MECHANISMS if one in enabled) if found.listener.protocol.sasl else ()
    advertised = found.listener.advertised
    shown = Endpoint(advertised.host, advertised.port) if advertised is not None else found.address

    async def dial(host: str, port: int, timeout_s: float) -> socket.socket:
        """Reach this broker itself, whatever address it advertises; other brokers at theirs."""
        if advertised is not None and (host, port) == (advertised.host, advertised.port):
            host, port = found.address
        return await open_socket(host, port, timeout_s)

    return OwnClient(client, mechanisms, shown, dial)


async def run_beside(
    what: str, run: Callable[[Callable[[str], None]], Awaitable[None]], task_status: "trio.TaskStatus[str]"
) -> None:
    """Run a program in a broker's process; it calls what it is given with its URL when it listens.

    Raises what it raises before. A later failure is logged: the broker continues without it.
    """
    urls: list[str] = []

    def report(url: str) -> None:
        urls.append(url)
        task_status.started(url)

    try:
        await run(report)
    except Exception:
        if not urls:
            raise
        logger.exception("%s failed; the broker continues without it", what)


def reached_listener(config: BrokerConfig, endpoints: dict[str, Endpoint], setting: str) -> Reached:
    """The listener by which the process reaches its broker. Raises ConfigError."""
    able = []
    for one in config.client_listeners:
        if one.protocol.tls and config.of_listener(one.name, "ssl.client.auth") == "required":
            continue
        enabled = config.of_listener(one.name, "sasl.enabled.mechanisms")
        if one.protocol.sasl and not any(mechanism in PASSWORD_MECHANISMS for mechanism in enabled):
            continue
        able.append(one)
    if not able:
        raise ConfigError(
            f"{setting} can use no listener: each wants a client's certificate, or has no mechanism of SASL among"
            f" {', '.join(PASSWORD_MECHANISMS)}"
        )
    chosen = max(able, key=lambda one: one.protocol.sasl)
    bound = endpoints[chosen.name]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(bound.host, bound.host)
    return Reached(chosen, Endpoint(host, bound.port))


def _own_context() -> ssl.SSLContext:
    """TLS without a check of the certificate: the other end is a socket of this very process."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
