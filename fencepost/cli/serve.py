"""`fencepost serve`: run one broker until a signal stops it."""

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fencepost.cli.addresses import is_loopback
from fencepost.cli.log_format import FORMATS, LEVELS, configure_logging
from fencepost.cli.sd_notify import notify, report_alive
from fencepost.cli.serve_cores import EXIT_FAILED, count_cores, report_to_supervisor, run_cores, run_one
from fencepost.extras import needed_for

if TYPE_CHECKING:
    import trio

    from fencepost.broker.cluster.serving.broker import ClusterBroker
    from fencepost.broker.config.broker_config import BrokerConfig
    from fencepost.broker.node import Node
    from fencepost.broker.place import Place
    from fencepost.cli.serve_cores import Main

logger = logging.getLogger(__name__)

DEFAULT_LISTEN = "127.0.0.1:9092"
EXIT_USAGE = 2
FEW_CONNECTIONS = 256
"""With fewer than these the start has a warning. Each client of Kafka's has several."""
YOUNG_OBJECTS_BEFORE_COLLECTION = 50_000
_START_TIME_FIELD = 19
"""Of /proc/self/stat, counted after the command's name: when the process began, in clock ticks since boot."""


@click.command()
@click.option(
    "--data",
    "data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the logs. [default: ./fencepost-data]",
)
@click.option(
    "--cores",
    "cores",
    metavar="N|auto",
    default="1",
    help="Run a broker on each of N cores, or on all, at consecutive ports; needs --data. [default: 1]",
)
@click.option("--memory", is_flag=True, help="Keep everything in memory. A restart begins empty.")
@click.option(
    "--store",
    "store",
    metavar="postgresql://...",
    help="Be a broker of the cluster whose logs are ordered in this database; needs --objects. [default: files]",
)
@click.option(
    "--objects",
    "objects",
    metavar="s3://BUCKET/PREFIX",
    help="Where the cluster keeps its records; also file:///DIRECTORY, gs:// and az://.",
)
@click.option(
    "--listen",
    "listen",
    metavar="[NAME://]HOST:PORT",
    multiple=True,
    help=f"Where to listen; port 0 picks one; repeatable. [default: {DEFAULT_LISTEN}]",
)
@click.option(
    "--advertise",
    "advertise",
    metavar="[NAME://]HOST:PORT",
    multiple=True,
    help="Advertised address of a listener, of the first one without NAME; repeatable. [default: the address the client"
    " connected to]",
)
@click.option(
    "--set", "assignments", metavar="NAME=VALUE", multiple=True, help="Set a setting by Kafka's name; repeatable."
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Read settings from a TOML file or a server.properties.",
)
@click.option(
    "--durability",
    type=click.Choice(["fsync", "os"]),
    help="Answer acks=all when the records are on the disk (fsync) or in the page cache (os). [default: fsync]",
)
@click.option(
    "--metrics", "metrics", metavar="HOST:PORT", help="Serve Prometheus metrics at this address. [default: off]"
)
@click.option("--console", "console", metavar="HOST:PORT", help="Serve the web console at this address. [default: off]")
@click.option(
    "--schema-registry",
    "schema_registry",
    metavar="HOST:PORT",
    help="Serve a schema registry with Confluent's REST API at this address. [default: off]",
)
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True)
def serve(
    data: Path | None,
    cores: str,
    memory: bool,
    store: str | None,
    objects: str | None,
    listen: tuple[str, ...],
    advertise: tuple[str, ...],
    assignments: tuple[str, ...],
    config_file: Path | None,
    durability: str | None,
    metrics: str | None,
    console: str | None,
    schema_registry: str | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run a broker until SIGTERM or SIGINT. Then answer the requests in flight, close the logs and exit with 0.

    \b
    Examples:
      fencepost serve --data ./data
      fencepost serve --memory --listen 127.0.0.1:0
      fencepost serve --config server.properties --set num.partitions=4
      fencepost serve --store postgresql://fencepost@db/fencepost --objects s3://records --set node.id=2
    """
    from fencepost.broker.config.broker_config import ConfigError, load_config  # here: --help needs none of it

    if memory and data is not None:
        raise click.UsageError("--memory and --data exclude each other")
    if store is not None and (memory or data is not None):
        raise click.UsageError("--store excludes --data and --memory: the stores have the logs")
    count = count_cores(cores)
    configure_logging(log_level, log_format)
    flags = {
        "log.dirs": None if data is None else str(data),
        "storage": "memory" if memory else None,
        "cluster.store": store,
        "cluster.objects": objects,
        "listeners": [_named(address) for address in listen] or None,
        "durability": durability,
        "metrics.listen": metrics,
        "console.listen": console,
        "schema.registry.listen": schema_registry,
    }
    try:
        load = partial(load_config, file=config_file, environ=os.environ, assignments=assignments)
        config = load(flags=flags)
        if "listeners" not in config.given:
            flags["listeners"] = [_named(DEFAULT_LISTEN)]
            config = load(flags=flags)
        if advertise:  # an address without a name is that of the first listener, wherever the listeners were set
            flags["advertised.listeners"] = [_named(address, config.listeners) for address in advertise]
            config = load(flags=flags)
    except ConfigError as error:
        click.echo(f"fencepost: {error}", err=True)
        sys.exit(EXIT_USAGE)
    if count > 1 and config.data_directory is None:  # not by the options alone: a setting may say so
        raise click.UsageError("--cores is for brokers with files: it excludes --memory and --store")
    for name in config.without_effect:
        logger.warning("setting has no effect here name=%s", name)
    if config.controller_listeners:
        left_out = ",".join(config.controller_listeners)
        logger.warning("controller listener is not served, this node is its own controller listener=%s", left_out)
    _warn_of_open_listeners(config)
    sys.exit(run_cores(config, count, run_broker) if count > 1 else run_one(config, run_broker))


def open_listeners(config: "BrokerConfig") -> list[str]:
    """The listeners that give every client of a network all rights."""
    from fencepost.broker.security.security_protocol import SecurityProtocol

    if config.authorizer_class_name:
        return []
    return [
        f"{one.name}://{one.host or '*'}:{one.port}"
        for one in config.client_listeners
        if one.protocol is SecurityProtocol.PLAINTEXT and not is_loopback(one.host)
    ]


def _warn_of_open_listeners(config: "BrokerConfig") -> None:
    """Once, at the start."""
    found = open_listeners(config)
    if found:
        logger.warning(
            "every client that reaches this address may do everything; set authorizer.class.name=standard, or listen on"
            " 127.0.0.1 listener=%s",
            ",".join(found),
        )


def _warn_of_few_connections(descriptors: int) -> None:
    """Once, at the start, rather than when clients are refused."""
    from fencepost.broker.log.storage.descriptor_pool import descriptors_for_connections

    connections = descriptors_for_connections()
    if connections < FEW_CONNECTIONS:
        logger.warning(
            "the limit of open files is low, and connections above the rest are closed; raise it by LimitNOFILE= in the"
            " unit, ulimit -Hn, or --ulimit nofile= of the container open_files=%d connections=%d",
            descriptors,
            connections,
        )


def _named(address: str, listeners: tuple[str, ...] = ()) -> str:
    """The address with a listener's name: its own, or that of the first of `listeners`, or PLAINTEXT."""
    first = listeners[0] if listeners and "://" in listeners[0] else "PLAINTEXT://"
    return address if "://" in address else f"{first.partition('://')[0]}://{address}"


def run_broker(
    config: "BrokerConfig", place: "Place | None" = None, ready_fd: int | None = None, main: "Main | None" = None
) -> int:
    """Run a broker in this process; return its exit code. `main` does something else with it than to serve."""
    notify("STATUS=Opening the logs.")
    gc.disable()  # objects of the start stay alive; `_tune_collector` runs the collector once after the start
    import trio

    from fencepost.broker.log.storage.descriptor_pool import raise_descriptor_limit

    _warn_of_few_connections(raise_descriptor_limit())
    try:
        if config.cluster_store is None:
            trio.run(main or _serve, config, place, ready_fd)
        else:
            trio.run(_serve_in_cluster, config)
    except Exception as failure:
        for error in _leaves(failure):
            if _explains_itself(error):
                logger.critical("the broker stops: it cannot continue cause=%s", error)
            else:
                logger.critical("the broker failed cause=%r", error, exc_info=error)
        return EXIT_FAILED
    finally:
        gc.enable()
    return 0


def _explains_itself(error: BaseException) -> bool:
    """Whether the text is enough, without a traceback: errors of the system, and errors of fencepost."""
    return isinstance(error, OSError) or type(error).__module__.startswith("fencepost.")


def _leaves(error: BaseException) -> list[BaseException]:
    """All exceptions in nested groups; an exception that is not a group is yielded itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]


async def _serve(config: "BrokerConfig", place: "Place | None" = None, ready_fd: int | None = None) -> None:
    import trio

    from fencepost.broker.node import Node

    node = Node(config, place=place)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, node, nursery.cancel_scope, stop)
        await nursery.start(node.run)
        beside = await _start_beside(node, nursery, stop)
        _tune_collector()
        if ready_fd is None:
            _print_ready(node, beside)
        else:
            nursery.start_soon(report_to_supervisor, ready_fd)
        nursery.start_soon(report_alive)
        await node.stopped.wait()
        nursery.cancel_scope.cancel()


async def _serve_in_cluster(config: "BrokerConfig") -> None:
    import trio

    from fencepost.broker.cluster.serving.broker import ClusterBroker  # here: it imports psycopg

    broker = ClusterBroker(config)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, broker, nursery.cancel_scope, stop)
        nursery.start_soon(_report_ready, broker, nursery, stop)
        await broker.run()
        nursery.cancel_scope.cancel()


async def _report_ready(broker: "ClusterBroker", nursery: "trio.Nursery", stop: "trio.Event") -> None:
    await broker.ready.wait()
    beside = await _start_beside(broker.current, nursery, stop)
    _tune_collector()
    _print_ready(broker.current, beside)
    await report_alive()


async def _start_beside(node: "Node", nursery: "trio.Nursery", stop: "trio.Event") -> dict[str, str]:
    """Serve the console and the schema registry until `stop` is set, those that are configured; returns their URLs.

    Raises ConfigError if one of them cannot reach the broker, and OSError if it cannot listen.
    """
    from fencepost.broker.config.broker_config import ConfigError

    found = {}
    if node.config.console_listen is not None:
        with needed_for("console.listen", "console", ConfigError):
            from fencepost.console.in_broker import begin  # here: it imports starlette and hypercorn
        found["console"] = await begin(node, nursery, stop)
    if node.config.schema_registry_listen is not None:
        with needed_for("schema.registry.listen", "registry", ConfigError):
            from fencepost.schema_registry.in_broker import begin as begin_registry
        found["schema_registry"] = await begin_registry(node, nursery, stop)
    return found


async def _stop_on_signal(node: "Node | ClusterBroker", scope: "trio.CancelScope", stop: "trio.Event") -> None:
    """On a signal, stop the broker and (by `stop`) its console and schema registry; on a second one, at once."""
    import trio

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            name = signal.Signals(number).name
            if node.stopping:
                logger.warning("stopping at once signal=%s", name)
                scope.cancel()
            else:
                logger.info("stopping signal=%s", name)
                notify("STOPPING=1", "STATUS=Answering the requests in flight and closing the logs.")
                stop.set()
                node.stop()


def _tune_collector() -> None:
    """Exclude the objects of the start from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_BEFORE_COLLECTION, 20, 100)
    gc.enable()


def _process_age_seconds() -> float:
    """The age of this process, imports included; its CPU time if the system does not report the age."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began = int(fields[_START_TIME_FIELD]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError):
        return time.process_time()


def _print_ready(node: "Node", beside: Mapping[str, str]) -> None:
    """The one line on standard output that a script may wait for, and the same for a service manager."""
    facts = node.place.facts()
    if node.metrics_endpoint is not None:
        facts.append(f"metrics={node.metrics_endpoint}")
    facts += [f"{name}={url}" for name, url in beside.items()]
    if len(node.endpoints) > 1:
        facts.append("listeners=" + ",".join(f"{name}://{where}" for name, where in node.endpoints.items()))
    facts += [f"pid={os.getpid()}", f"started_in={_process_age_seconds():.2f}s"]
    notify("READY=1", f"STATUS=Serving on {node.endpoint}.")
    print(f"fencepost ready on {node.endpoint} {' '.join(facts)}", flush=True)
