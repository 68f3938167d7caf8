"""A console in a broker's process: it reaches that broker as a client, by one of its listeners."""

import logging
from pathlib import Path
from typing import Protocol

import trio

from fencepost.broker.config.broker_config import BrokerConfig, ConfigError
from fencepost.broker.network.context import Endpoint
from fencepost.console.reaching import own_client
from fencepost.console.serving import Options, run, warn_if_open

logger = logging.getLogger(__name__)


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
    """The console of a broker that listens at `endpoints`. Raises ConfigError if no listener can serve a console."""
    assert config.console_listen is not None
    try:
        client = own_client(config, endpoints, "fencepost-console", "console.listen")
    except ConfigError as error:
        raise ConfigError(f"{error}. Run `fencepost console` with --command-config instead") from None
    metadata = config.data_directory if config.cluster_store is None else None
    return Options(
        config.console_listen,
        client.config,
        client.mechanisms,
        str(client.bootstrap),
        metadata,
        config.console_hosts,
        None if config.console_certificate_location is None else Path(config.console_certificate_location),
        None if config.console_key_location is None else Path(config.console_key_location),
        client.dial,
    )
