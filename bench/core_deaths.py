"""How long the partitions of a core are away after kill -9 under load, with many bytes in its logs.

    python -m bench.core_deaths [--gib 10] [--cores 2] [--partitions 8] [--kills 3] [--durability os] [--data DIR]

Writes at full speed to all cores, then kills one again and again while requests are under way, and tells when each of
its partitions has answered a fetch of its first batch and a produce. Needs room for what it writes, and removes it.
"""

import argparse
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from bench.cores import leaders
from bench.pour import TOPIC, create_topic, pour
from bench.recovery import first_answers
from bench.target import OwnBroker, cpu_seconds_of

FLOOD_BYTES = 2 << 30
"""More than a core takes before it is killed."""
FLOOD_SECONDS = 0.5
PAUSE_SECONDS = 0.005
SETTLED_SECONDS = 12.0
"""After a life of this length, the next start of a core is put off for the shortest time."""


def flood_and_kill(broker: OwnBroker, address: str, partitions: Sequence[int]) -> None:
    """Kill a core while it is written to at full speed."""
    begun = threading.Event()

    def run() -> None:
        with suppress(OSError):  # the end of the core is what this waits for
            pour(address, FLOOD_BYTES, partitions, told=lambda _: begun.set())
        begun.set()

    writer = threading.Thread(target=run)
    writer.start()
    begun.wait()
    time.sleep(FLOOD_SECONDS)
    core_at(broker, address).kill()
    writer.join()


def away_seconds(address: str, partitions: Sequence[int]) -> float:
    """Seconds until all partitions have answered."""
    began = time.monotonic()
    while True:
        try:
            first_answers(address, partitions)
        except (OSError, AssertionError):  # refused, reset, or an error code
            time.sleep(PAUSE_SECONDS)
        else:
            return time.monotonic() - began


def main() -> None:
    """Write, kill, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.core_deaths", description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--durability", choices=["os", "fsync"], default="os")
    parser.add_argument("--data", help="where to write; by default in the system's temporary directory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.data) as folder:
        broker = OwnBroker("broker", Path(folder), options.durability)
        broker.arguments = ["--cores", str(options.cores)]
        broker.start()
        try:
            measure(broker, options)
        finally:
            broker.stop()


def measure(broker: OwnBroker, options: argparse.Namespace) -> None:
    """Kill each core in turn."""
    create_topic(broker.address, options.partitions)
    led: dict[str, list[int]] = {}
    for number, leader in enumerate(leaders(broker.address, TOPIC)):
        led.setdefault(leader, []).append(number)
    size_bytes = int(options.gib * (1 << 30)) // len(led)
    began = time.monotonic()
    make = multiprocessing.get_context("spawn").Process
    writers = [make(target=pour, args=(address, size_bytes, numbers)) for address, numbers in led.items()]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
        if process.exitcode:
            raise RuntimeError("the flood failed")
    print(f"{options.gib:g} GiB written in {time.monotonic() - began:.0f} s", flush=True)
    addresses = broker.facts["cores"].split(",")
    for kill in range(options.kills):
        number = options.cores - 1 - kill % options.cores
        address = addresses[number]
        flood_and_kill(broker, address, led[address])
        away = away_seconds(address, led[address])
        cpu = cpu_seconds_of(core_at(broker, address))
        print(
            f"{options.durability}, core {number} with {len(led[address])} partitions after kill -9: "
            f"all read and written again after {away:.2f} s, of which {cpu:.2f} s are CPU of its new process",
            flush=True,
        )
        time.sleep(SETTLED_SECONDS)


def core_at(broker: OwnBroker, address: str) -> psutil.Process:
    """The process of the core that listens there."""
    port = int(address.rpartition(":")[2])
    for process in psutil.Process(broker.pid).children():
        if any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in process.net_connections("tcp")):
            return process
    raise RuntimeError(f"no process listens at {address}")


if __name__ == "__main__":
    main()
