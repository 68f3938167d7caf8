"""Opens the configured listeners, and makes the addresses under which the broker registers itself."""

import socket
from collections.abc import Mapping

import trio

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.config.listeners import EVERY_INTERFACE
from fencepost.broker.logins import Logins
from fencepost.broker.network.context import Endpoint
from fencepost.broker.network.listening import Listening
from fencepost.broker.network.server import Server
from fencepost.broker.ports import Broker
from fencepost.protocol.metadata_record_types import BrokerEndpoint


async def open_listeners(server: Server, node: Broker, services: trio.Nursery) -> dict[str, Endpoint]:
    """Listen on every configured address. Returns the bound addresses by listener, in order.

    `services` runs what logins and certificates need in the background. Raises OSError, and StoreError for a
    certificate that cannot be used.
    """
    config = node.config
    logins = Logins(config, node.metadata, node.clock, node.place.mechanisms)
    await logins.start(services, has_users=node.place.followed_metadata is None)
    watch = None
    if any(one.protocol.tls for one in config.client_listeners):
        from fencepost.broker.tls_listeners import CertificateWatch  # here: it imports ssl

        watch = CertificateWatch(node)
        services.start_soon(watch.run)
    bound = {}
    for one in config.client_listeners:
        advertised = Endpoint(one.advertised.host, one.advertised.port) if one.advertised else None
        tls = watch.make(one) if watch is not None and one.protocol.tls else None
        listening = Listening(one.name, one.protocol, advertised, config, logins.by_listener.get(one.name), tls)
        bound[one.name] = listening.open(one.host, one.port)
        server.listen(listening)
    return bound


def configured_addresses(config: BrokerConfig) -> dict[str, Endpoint]:
    return {one.name: Endpoint(one.host, one.port) for one in config.client_listeners}


def end_points(config: BrokerConfig, bound: Mapping[str, Endpoint]) -> tuple[BrokerEndpoint, ...]:
    """The advertised address of each listener, as the broker registers it. Without one: the bound address."""
    found = []
    for one in config.client_listeners:
        host, port = (one.advertised.host, one.advertised.port) if one.advertised else bound[one.name]
        found.append(
            BrokerEndpoint(one.name, socket.gethostname() if host in EVERY_INTERFACE else host, port, one.protocol)
        )
    return tuple(found)
