"""`fencepost serve --cores N`: a broker for each core, and the process that watches them."""

import dataclasses
import logging
import math
import os
import signal
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

import click

from fencepost.cli.log_format import name_core
from fencepost.cli.sd_notify import notify, watchdog_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from fencepost.broker.config.broker_config import BrokerConfig
    from fencepost.broker.cores.layout import Layout
    from fencepost.broker.cores.supervisor import Supervisor
    from fencepost.broker.place import Place

    Main = Callable[[BrokerConfig, Place | None, int | None], Awaitable[None]]

logger = logging.getLogger(__name__)

EXIT_FAILED = 1
DECIDED_PAUSE_SECONDS = 0.05


def count_cores(text: str) -> int:
    """The number of cores to use. Raises click.BadParameter."""
    if text == "auto":  # containers and systemd restrict a process to some of the machine's cores
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return usable if hasattr(os, "fork") else 1
    if not text.isascii() or not text.isdigit() or not int(text):
        raise click.BadParameter(f"{text!r} is neither a number of cores nor auto", param_hint="--cores")
    if int(text) > 1 and not hasattr(os, "fork"):
        raise click.BadParameter(
            "several cores need a system that can fork processes, which Windows cannot: start without --cores",
            param_hint="--cores",
        )
    return int(text)


class RunBroker(Protocol):
    """Runs a broker in this process, and returns its exit code."""

    def __call__(
        self,
        config: "BrokerConfig",
        place: "Place | None" = None,
        ready_fd: int | None = None,
        main: "Main | None" = None,
    ) -> int: ...


def run_one(config: "BrokerConfig", run_broker: RunBroker) -> int:
    """Run one broker, also in a directory that several cores used before; return the exit code."""
    from fencepost.broker.cores.arranging import had_cores

    root = config.data_directory
    if root is None or config.cluster_store is not None or not had_cores(root):
        return run_broker(config)
    from fencepost.broker.cores.layout import next_start
    from fencepost.broker.cores.placed import OneOfSeveral
    from fencepost.broker.log.storage.lock import DirectoryInUse
    from fencepost.broker.metadata.identity import WrongDirectory

    try:
        if not _arrange(config, 1, run_broker):
            return 0
        place = OneOfSeveral(config, next_start(root))
    except (OSError, ValueError, WrongDirectory, DirectoryInUse) as error:
        logger.critical("the broker stops: it cannot continue cause=%s", error)
        return EXIT_FAILED
    return run_broker(config, place)


def run_cores(config: "BrokerConfig", cores: int, run_broker: RunBroker) -> int:
    """Run a broker on each of several cores, by `run_broker` in its process; return the exit code."""
    from fencepost.broker.cores.layout import prepared
    from fencepost.broker.log.storage.lock import DirectoryInUse
    from fencepost.broker.metadata.identity import WrongDirectory
    from fencepost.broker.network.context import Endpoint

    try:
        if not _arrange(config, cores, run_broker):
            return 0
        layout = prepared(config, cores)
    except (OSError, ValueError, WrongDirectory, DirectoryInUse) as error:
        logger.critical("the broker stops: it cannot continue cause=%s", error)
        return EXIT_FAILED

    printed = False

    def report(missing: "Collection[int]") -> None:
        nonlocal printed
        configs = supervisor.layout.configs[: supervisor.layout.cores]
        addresses = [one.listeners[0].partition("://")[2] for one in configs]
        serving = ", ".join(one for number, one in enumerate(addresses) if number not in missing)
        without = ",".join(map(str, sorted(missing)))
        notify("READY=1", f"STATUS=Serving on {serving}" + (f", without core {without}." if missing else "."))
        if printed:
            return
        printed = True
        facts = [f"data={layout.root.absolute()}", f"durability={config.durability}", f"cores={','.join(addresses)}"]
        if layout.pages_socket is not None:
            facts.append(f"metrics={Endpoint(*layout.pages_socket.getsockname()[:2])}")
        if len(layout.configs[0].listeners) > 1:
            facts.append("listeners=" + ",".join(layout.configs[0].listeners))
        if missing:
            facts.append(f"missing={without}")
        print(f"fencepost ready on {addresses[0]} {' '.join(facts)} pid={os.getpid()}", flush=True)

    supervisor = _supervisor(layout, run_broker, report, lambda: notify("WATCHDOG=1"), watchdog_seconds())
    try:
        return supervisor.run()
    finally:
        supervisor.layout.close()


def _supervisor(
    layout: "Layout",
    run_broker: RunBroker,
    notify_ready: "Callable[[Collection[int]], None]",
    notify_alive: "Callable[[], None]" = lambda: None,
    watchdog: float = 0,
    main: "Main | None" = None,
) -> "Supervisor":
    from fencepost.broker.cores.place import Core
    from fencepost.broker.cores.supervisor import Supervisor

    import_module("fencepost.broker.node")  # before the forks: all cores share its memory

    def serve_core(own: "Layout", number: int, pipe: int) -> int:
        os.environ.pop("NOTIFY_SOCKET", None)
        name_core(number)
        return run_broker(own.configs[number], Core(own, number), pipe, main)

    return Supervisor(layout, serve_core, notify_ready, notify_alive, watchdog)


def _arrange(config: "BrokerConfig", cores: int, run_broker: RunBroker) -> bool:
    """Move partitions to the cores that will lead them. Returns False if that was interrupted. Raises as `arrange`."""
    from fencepost.broker.cores.arranging import arrange
    from fencepost.broker.cores.layout import prepared
    from fencepost.broker.log.storage.layout import CORES_DIRECTORY
    from fencepost.broker.log.storage.lock import hold_cores

    quiet = dataclasses.replace(config, metrics_listen=None, console_listen=None, schema_registry_listen=None)

    def finish(last: int) -> bool:
        finished = False

        def report(missing: "Collection[int]") -> None:
            nonlocal finished
            if not missing:  # else an outcome may be in doubt
                finished = True
                supervisor.stop()

        layout = prepared(quiet, last)
        supervisor = _supervisor(layout, run_broker, report, main=_finish)
        try:
            supervisor.run()
        finally:
            layout.close()
        return finished

    assert config.data_directory is not None, "cores have files"
    if (config.data_directory / CORES_DIRECTORY).is_dir():
        hold_cores(config.data_directory).close()
    return arrange(config, cores, finish)


async def _finish(config: "BrokerConfig", place: "Place | None", ready_fd: int | None) -> None:
    """Run a broker without clients; say to the supervisor when its logs are open, and no outcome is in doubt."""
    import trio

    from fencepost.broker.node import Node

    node = Node(config, place=place, listening=False)
    assert ready_fd is not None, "a supervisor waits"

    async def stop_on_signal() -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                node.stop()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_on_signal)
        await nursery.start(node.run)
        assert node.partitions.opener is not None, "cores have files"
        while not (node.partitions.opener.is_finished and node.transactions.is_decided):  # noqa: ASYNC110 - threads
            await trio.sleep(DECIDED_PAUSE_SECONDS)
        os.write(ready_fd, b"1")
        await node.stopped.wait()
        nursery.cancel_scope.cancel()


async def report_to_supervisor(pipe: int) -> None:
    """That this core is ready, and from then on that its event loop runs."""
    import trio

    with suppress(BrokenPipeError):  # the supervisor has ended, and so does this core, in order
        while True:
            os.write(pipe, b"1")
            await trio.sleep(watchdog_seconds() / 4 or math.inf)
