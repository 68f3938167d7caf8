"""A console in a broker's process: it reaches that broker as a client, by one of its listeners."""

from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from fencepost.broker.config.broker_config import BrokerConfig, ConfigError
from fencepost.broker.network.context import Endpoint
from fencepost.console.reaching import own_client, run_beside
from fencepost.console.serving import Options, run, warn_if_open


class Node(Protocol):
    """What a console needs of its broker."""

    endpoints: dict[str, Endpoint]

    @property
    def config(self) -> BrokerConfig: ...


async def begin(node: Node, nursery: trio.Nursery, stop: trio.Event) -> str:
    """Serve the console until `stop` is set; returns its URL. Raises ConfigError and OSError."""
    options = options_in(node.config, node.endpoints)
    warn_if_open(options)
    url: str = await nursery.start(run_beside, "the console", partial(run, options, stop))
    return url


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
