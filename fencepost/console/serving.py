"""Serves a console over HTTP, on hypercorn and trio."""

import logging
import ssl
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from fencepost.cli.addresses import is_loopback
from fencepost.client.network.wire import Dial, open_socket
from fencepost.console.app import application
from fencepost.console.connections import Sessions
from fencepost.console.state import Console

logger = logging.getLogger(__name__)
GRACE_SECONDS = 2.0
"""How long open responses have after the end; streams end at once."""
KEEP_ALIVE_SECONDS = 30


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
    if is_loopback(options.listen.rpartition(":")[0].strip("[]")):
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


async def run(
    options: Options, stop: trio.Event, task_status: "trio.TaskStatus[str]" = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until `stop` is set; reports the console's URL when it listens. Raises OSError if it cannot listen."""
    config = Config()
    config.bind = [options.listen]
    config.errorlog = logging.getLogger(f"{__name__}.http")
    config.errorlog.setLevel(logging.WARNING)
    config.accesslog = None
    config.include_server_header = False
    config.graceful_timeout = GRACE_SECONDS
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    config.alpn_protocols = ["http/1.1"]
    if options.certificate is not None:
        config.certfile = str(options.certificate)
        config.keyfile = str(options.key or options.certificate)
        config.create_ssl_context = partial(_tls, config)  # type: ignore[method-assign]
    async with trio.open_nursery() as clients:
        sessions = Sessions(options.client, options.mechanisms, clients, options.dial)
        console = Console(sessions, options.bootstrap, options.metadata, options.hosts)
        async with trio.open_nursery() as serving:
            app: Any = application(console)  # each names ASGI's types in its own words
            bound: list[str] = await serving.start(partial(serve, app, config, shutdown_trigger=stop.wait))
            task_status.started(bound[0])
            await stop.wait()
            console.stopping.set()
        clients.cancel_scope.cancel()


def _tls(config: Config) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(config.certfile or "", config.keyfile)
    context.set_alpn_protocols(config.alpn_protocols)
    return context
