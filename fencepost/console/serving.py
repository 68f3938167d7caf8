"""Serves a console over HTTP, on hypercorn and trio."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import trio

from fencepost.cli.addresses import is_loopback
from fencepost.client.network.wire import Dial, open_socket
from fencepost.console.app import application
from fencepost.console.connections import Sessions
from fencepost.console.http_server import listen, quiet_config, serve, server_tls
from fencepost.console.state import Console

logger = logging.getLogger(__name__)


class Options(NamedTuple):
    """What a console serves, and where.

    `listen` is HOST:PORT; `client` the configuration of its clients under Kafka's names; `mechanisms` those of SASL by
    which users log in (empty: no login, all share one client); `bootstrap` names the cluster in commands.
    `certificate` and `key` are PEM files for HTTPS. `dial` opens the sockets to brokers.
    """

    listen: str
    client: Mapping[str, Any]
    mechanisms: Sequence[str]
    bootstrap: str
    metadata: Path | None = None
    hosts: Iterable[str] = ()
    certificate: Path | None = None
    key: Path | None = None
    dial: Dial = open_socket


def warn_if_open(options: Options) -> None:
    """Log once, at the start, what an address that others reach means."""
    if is_loopback(options.listen.rpartition(":")[0].strip("[]") or "127.0.0.1"):
        return
    if not options.mechanisms:
        logger.warning(
            "everyone who reaches the console may do what its user may; have users log in by SASL, or listen on"
            " 127.0.0.1 listen=%s",
            options.listen,
        )
    if options.certificate is None:
        logger.warning(
            "passwords and pages cross the network in plain text; give the console a certificate, or put a proxy with"
            " TLS before it listen=%s",
            options.listen,
        )


async def run(options: Options, stop: trio.Event, report: Callable[[str], None]) -> None:
    """Serve until `stop` is set; `report` gets the console's URL when it listens. Raises OSError if it cannot."""
    config = quiet_config(f"{__name__}.http")
    listener, where = await listen(options.listen)
    tls = None if options.certificate is None else server_tls(options.certificate, options.key)
    async with trio.open_nursery() as clients:
        sessions = Sessions(options.client, options.mechanisms, clients, options.dial)
        clients.start_soon(sessions.end_idle)
        console = Console(sessions, options.bootstrap, options.metadata, options.hosts)
        report(f"{'http' if tls is None else 'https'}://{where}")
        async with trio.open_nursery() as serving:
            listening = listener if tls is None else trio.SSLListener(listener, tls, https_compatible=True)
            serving.start_soon(serve, application(console), config, [listening], stop)
            await stop.wait()
            console.stopping.set()
        clients.cancel_scope.cancel()
