"""`fencepost serve --cores N`: a broker for each core, and the process that watches them."""

import logging
import math
import os
from importlib import import_module
from typing import TYPE_CHECKING

import click

from fencepost.cli.log_format import name_core
from fencepost.cli.sd_notify import notify, watchdog_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencepost.broker.config.broker_config import BrokerConfig
    from fencepost.broker.cores.layout import Layout
    from fencepost.broker.cores.place import Core

logger = logging.getLogger(__name__)

EXIT_FAILED = 1


def count_cores(text: str) -> int:
    """The number of cores to use. Raises click.BadParameter."""
    if text == "auto":  # containers and systemd restrict a process to some of the machine's cores
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return usable if hasattr(os, "fork") else 1
    if not text.isascii() or not text.isdigit() or not int(text):
        raise click.BadParameter(f"{text!r} is neither a number of cores nor auto", param_hint="--cores")
    if int(text) > 1 and not hasattr(os, "fork"):
        raise click.BadParameter("several cores need a system that can fork processes", param_hint="--cores")
    return int(text)


def run_cores(config: "BrokerConfig", cores: int, run_broker: "Callable[[BrokerConfig, Core, int], int]") -> int:
    """Run a broker on each of several cores, by `run_broker` in its process; return the exit code."""
    from fencepost.broker.cores.layout import prepared
    from fencepost.broker.cores.place import Core
    from fencepost.broker.cores.supervisor import Supervisor
    from fencepost.broker.metadata.identity import WrongDirectory

    import_module("fencepost.broker.node")  # before the forks: all cores share its memory
    try:
        layout = prepared(config, cores)
    except (OSError, ValueError, WrongDirectory) as error:
        logger.critical("the broker stops: it cannot continue cause=%s", error)
        return EXIT_FAILED

    def serve_core(own: "Layout", number: int, pipe: int) -> int:
        os.environ.pop("NOTIFY_SOCKET", None)
        name_core(number)
        return run_broker(own.configs[number], Core(own, number), pipe)

    def report(event: str) -> None:
        if event == "alive":
            notify("WATCHDOG=1")
            return
        addresses = [one.listeners[0].partition("://")[2] for one in layout.configs]
        notify("READY=1", f"STATUS=Serving on {', '.join(addresses)}.")
        facts = [f"data={layout.root.absolute()}", f"durability={config.durability}", f"cores={','.join(addresses)}"]
        if layout.pages_socket is not None:
            facts.append("metrics={}:{}".format(*layout.pages_socket.getsockname()[:2]))
        if len(layout.configs[0].listeners) > 1:
            facts.append("listeners=" + ",".join(layout.configs[0].listeners))
        print(f"fencepost ready on {addresses[0]} {' '.join(facts)} pid={os.getpid()}", flush=True)

    try:
        return Supervisor(layout, serve_core, report, watchdog_seconds()).run()
    finally:
        layout.close()


async def report_to_supervisor(pipe: int) -> None:
    """That this core is ready, and from then on that its event loop runs."""
    import trio

    while True:
        os.write(pipe, b"1")
        await trio.sleep(watchdog_seconds() / 4 or math.inf)
