"""A console in a broker's process: it reaches that broker as a client, by one of its listeners."""

import logging
import socket
import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import trio

from fencepost.broker.config.broker_config import BrokerConfig, ConfigError
from fencepost.broker.config.listeners import ClientListener
from fencepost.broker.network.context import Endpoint
from fencepost.client.core.sasl import PASSWORD_MECHANISMS
from fencepost.client.network.wire import open_socket
from fencepost.console.serving import Options, run, warn_if_open

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 5000


class Reached(NamedTuple):
    """A listener of the broker, and the address at which the process itself reaches it."""

    listener: ClientListener
    address: Endpoint


class Node(Protocol):
    """What a console needs of its broker."""

    endpoints: dict[str, Endpoint]

    @property
    def config(self) -> BrokerConfig: ...


async def begin(node: Node, nursery: trio.Nursery, stop: trio.Event) -> str:
    """Serve the console until `stop` is set; returns its URL. Raises ConfigError and OSError.

    A failure of the console later on is logged: the broker continues without it.
    """
    options = options_in(node.config, node.endpoints)
    warn_if_open(options)
    url: str = await nursery.start(_serve, options, stop)
    return url


async def _serve(options: Options, stop: trio.Event, task_status: "trio.TaskStatus[str]") -> None:
    started = False
    try:
        async with trio.open_nursery() as nursery:
            url: str = await nursery.start(run, options, stop)
            started = True
            task_status.started(url)
    except Exception:
        if not started:
            raise
        logger.exception("the console failed; the broker continues without it")


def options_in(config: BrokerConfig, endpoints: dict[str, Endpoint]) -> Options:
    """The console of a broker that listens at `endpoints`. Raises ConfigError if no listener can serve a console.

    A listener with SASL is preferred: there the users log in, and have their own rights.
    """
    assert config.console_listen is not None
    found = reached_listener(config, endpoints)
    client: dict[str, Any] = {
        "bootstrap.servers": str(found.address),
        "client.id": "fencepost-console",
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

    metadata = config.data_directory if config.cluster_store is None else None
    return Options(
        config.console_listen,
        client,
        mechanisms,
        str(shown),
        metadata,
        config.console_hosts,
        None if config.console_certificate_location is None else Path(config.console_certificate_location),
        None if config.console_key_location is None else Path(config.console_key_location),
        dial,
    )


def reached_listener(config: BrokerConfig, endpoints: dict[str, Endpoint]) -> Reached:
    """The listener by which the console reaches the broker. Raises ConfigError."""
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
            "console.listen: the console can use no listener: each wants a client's certificate, or has no mechanism"
            f" of SASL among {', '.join(PASSWORD_MECHANISMS)}. Run `fencepost console` with --command-config instead"
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
