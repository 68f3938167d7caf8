"""A registry in a broker's process: it reaches that broker as a client, by one of its listeners."""

import ipaddress
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import trio

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.log.storage.descriptor_pool import descriptors_for_connections
from fencepost.broker.network.context import Endpoint
from fencepost.console.connections import Sessions
from fencepost.console.http_server import listen, quiet_config, serve, server_tls
from fencepost.console.reaching import own_client, run_beside
from fencepost.schema_registry import CLIENT_ID
from fencepost.schema_registry.http import Application
from fencepost.schema_registry.logins import Logins
from fencepost.schema_registry.store import Store

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 2000
"""Of all addresses; one may have half of them. Each client keeps one open, and tests create many on one machine."""
SHARE: Final = 8
"""This part of the connections that the limit of descriptors allows to Kafka's clients, and no more."""


class Node(Protocol):
    """What a registry needs of its broker."""

    endpoints: dict[str, Endpoint]

    @property
    def config(self) -> BrokerConfig: ...


async def begin(node: Node, nursery: trio.Nursery, stop: trio.Event) -> str:
    """Serve the registry until `stop` is set; returns its URL. Raises ConfigError and OSError."""
    url: str = await nursery.start(run_beside, "the schema registry", partial(_serve, node, stop))
    return url


async def _serve(node: Node, stop: trio.Event, report: Callable[[str], None]) -> None:
    config = node.config
    assert config.schema_registry_listen is not None
    client = own_client(config, node.endpoints, CLIENT_ID, "schema.registry.listen")
    listener, where = await listen(config.schema_registry_listen)
    listening: list[trio.SocketListener | trio.SSLListener[trio.SocketStream]] = [listener]
    scheme, certificate, key = "http", config.schema_registry_certificate_location, config.schema_registry_key_location
    if certificate is not None:
        tls = server_tls(Path(certificate), None if key is None else Path(key))
        scheme, listening = "https", [trio.SSLListener(listener, tls, https_compatible=True)]
    _warn_if_open(listener, bool(client.mechanisms), certificate is not None)
    async with trio.open_nursery() as clients:
        sessions = Sessions(client.config, client.mechanisms, clients, client.dial)
        clients.start_soon(sessions.end_idle)
        application = Application(Store(), Logins(sessions))
        report(f"{scheme}://{where}")
        config_of_http = quiet_config(f"{__name__}.http")
        connections = min(CONNECTIONS_MAX, max(2, descriptors_for_connections() // SHARE))
        await serve(application, config_of_http, listening, stop, connections, connections // 2)
        clients.cancel_scope.cancel()


def _warn_if_open(listener: trio.SocketListener, login: bool, tls: bool) -> None:
    """Log once, at the start, what an address that others reach means."""
    host, port = listener.socket.getsockname()[:2]
    if ipaddress.ip_address(host.partition("%")[0]).is_loopback or (login and tls):
        return
    if login:
        text = "passwords cross the network in plain text; set schema.registry.certificate.location listen=%s:%d"
    else:
        text = "everyone who reaches the schema registry may change schemas; add a listener with SASL listen=%s:%d"
    logger.warning(text, host, port)
