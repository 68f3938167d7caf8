"""`python -m examples.flights`: the demo; exits 1 on any difference."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import trio

from examples.flights.play import Play, Setting
from examples.flights.postgres import NoPostgres
from examples.flights.screen import Screen

JAVA_LEAST = 17


def java_version() -> int:
    """The major version of the Java that Spark would take; 0 where there is none."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home and Path(home, "bin/java").exists() else shutil.which("java")
    if java is None:
        return 0
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description="336,776 flights, exactly once.")
    parser.add_argument("--directory", type=Path, default=Path(".demo"), help="made new; %(default)s by default")
    parser.add_argument("--loaders", type=int, default=4, help="producer processes; one is confluent-kafka")
    parser.add_argument("--transaction-rows", type=int, default=1000)
    parser.add_argument("--cores", type=int, default=3, help="of the broker; %(default)s by default")
    parser.add_argument("--without-spark", action="store_true", help="compute with a plain consumer")
    parser.add_argument("--cluster", action="store_true", help="three brokers over PostgreSQL and an object store")
    options = parser.parse_args()
    if options.loaders < 2:
        parser.error("--loaders must be at least 2: one of them is confluent-kafka")
    if options.cores < 2:
        parser.error("--cores must be at least 2: one of them is killed while the others serve")

    screen = Screen()
    with_spark = not options.without_spark and java_version() >= JAVA_LEAST
    if not with_spark and not options.without_spark:
        screen.tell(
            f"[bold yellow]No Java {JAVA_LEAST} or newer: the figures are computed without Spark.[/bold yellow]"
        )
    setting = Setting(options.directory.resolve(), options.loaders, options.transaction_rows, with_spark, options.cores)
    try:
        show = Play(setting._replace(on_cluster=options.cluster), screen)
    except NoPostgres as error:
        screen.tell(f"[bold red]{error}[/bold red]")
        return 1
    equal = trio.run(play, show)
    return 0 if equal else 1


async def play(show: Play) -> bool:
    """Run the demo; SIGTERM ends it in order, with no process left behind."""
    equal = False
    async with trio.open_nursery() as nursery:

        async def end_on_signal() -> None:
            with trio.open_signal_receiver(signal.SIGTERM) as signals:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

        nursery.start_soon(end_on_signal)
        equal = await show.run()
        nursery.cancel_scope.cancel()
    return equal


if __name__ == "__main__":
    sys.exit(main())
