"""How long the event loop stands still while gigabytes are written at full speed: a 5 ms ticker beside the broker.

    python -m bench.stall [--gib 10] [--partitions 1] [--durability os] [--data DIRECTORY]

A gap is how much later than asked the ticker woke. What other work on the machine makes of it is told apart: the time
that the thread spent waiting for a processor (run_delay of /proc/PID/schedstat), and in a virtual machine the time that
the host took away from a processor meanwhile (steal of /proc/stat, of the processor that lost most; in steps of 10 ms).
For each gap above 50 ms it also says how long the thread was on a processor itself. The same ticker in a process that
does nothing else says what the machine makes of it (`idle`). Needs room for what it writes, and removes it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio

from bench.pour import create_topic, pour_in_process

TICK_SECONDS = 0.005
STALL_SECONDS = 0.05
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Gap(NamedTuple):
    """One late wake-up, in seconds."""

    late: float
    waited: float
    """Of which the thread was ready and had no processor,"""
    stolen: float
    """and the host of a virtual machine had taken the processor."""

    @property
    def own(self) -> float:
        """What is left for the broker to answer for."""
        return max(0.0, self.late - self.waited - self.stolen)


class Ticker:
    """Wakes every 5 ms and notes how late."""

    def __init__(self) -> None:
        self.gaps: list[Gap] = []
        self.stalls: list[str] = []
        """Each gap of more than 50 ms, its own part or not."""
        self._stat = os.open("/proc/stat", os.O_RDONLY)

    async def run(self) -> None:
        """Tick until cancelled. It judges the thread that it runs in, and no other may run it."""
        self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        ran, (cpu, waited), stolen = trio.current_time(), self._self(), self._stolen()
        while True:
            await trio.sleep(TICK_SECONDS)
            late = max(0.0, trio.current_time() - ran - TICK_SECONDS)
            cpu_before, waited_before, stolen_before = cpu, waited, stolen
            (cpu, waited), stolen = self._self(), self._stolen()
            taken = max(now - before for now, before in zip(stolen, stolen_before, strict=True))
            gap = Gap(late, waited - waited_before, taken)
            self.gaps.append(gap)
            if late - gap.waited > STALL_SECONDS:
                self.stalls.append(
                    f"{late * 1000:.0f} ms: waited {gap.waited * 1000:.0f}, stolen {gap.stolen * 1000:.0f},"
                    f" on a processor {(cpu - cpu_before) * 1000:.0f}"
                )
            ran = trio.current_time()

    def summary(self) -> dict[str, Any]:
        """The figures of all ticks."""
        own = sorted(gap.own for gap in self.gaps)
        return {
            "ticks": len(own),
            "max_ms": max(gap.late for gap in self.gaps) * 1000,
            "own_p99_ms": own[int(len(own) * 0.99)] * 1000,
            "own_p999_ms": own[int(len(own) * 0.999)] * 1000,
            "own_max_ms": own[-1] * 1000,
            "own_over_50_ms": sum(one > STALL_SECONDS for one in own),
            "stolen_ms": sum(gap.stolen for gap in self.gaps) * 1000,
            "stalls": self.stalls,
        }

    def _self(self) -> tuple[float, float]:
        """Seconds that this thread was on a processor, and ready without one."""
        ran, waited, _ = os.pread(self._schedstat, 100, 0).split()
        return int(ran) / 1e9, int(waited) / 1e9

    def _stolen(self) -> list[float]:
        """Seconds that the host has taken from each processor."""
        lines = os.pread(self._stat, 65536, 0).split(b"\n")
        return [int(line.split()[8]) / CLOCK_TICKS for line in lines[1:] if line.startswith(b"cpu")]


def rss_mib() -> float:
    """Resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


async def serve(data: str, durability: str) -> None:
    """A broker with a ticker beside it; says its address, and the ticker's figures when standard input ends."""
    from fencepost.broker.config.broker_config import load_config
    from fencepost.broker.node import Node
    from fencepost.cli.serve import _tune_collector

    flags = {"log.dirs": data, "listeners": "PLAINTEXT://127.0.0.1:0", "durability": durability}
    node = Node(load_config(file=None, environ={}, assignments=(), flags=flags))
    ticker = Ticker()
    async with trio.open_nursery() as nursery:
        endpoint = await nursery.start(node.run)
        _tune_collector()
        print(endpoint, flush=True)
        nursery.start_soon(ticker.run)
        await trio.to_thread.run_sync(sys.stdin.read)
        print(json.dumps(ticker.summary() | {"rss_mib": rss_mib()}), flush=True)
        node.stop()
        await node.stopped.wait()
        nursery.cancel_scope.cancel()


@contextmanager
def idle_ticker() -> Iterator[Ticker]:
    """A ticker in a thread of this process, which waits meanwhile."""
    ticker, scope = Ticker(), trio.CancelScope()
    begun: list[trio.lowlevel.TrioToken] = []

    async def tick() -> None:
        begun.append(trio.lowlevel.current_trio_token())
        with scope:
            await ticker.run()

    thread = threading.Thread(target=trio.run, args=(tick,))
    thread.start()
    try:
        yield ticker
    finally:
        begun[0].run_sync_soon(scope.cancel)
        thread.join()


def measure(folder: str, gib: float, partitions: int, durability: str) -> dict[str, Any]:
    """One run on a fresh directory."""
    command = [sys.executable, "-m", "bench.stall", "--serve", "--data", f"{folder}/data", "--durability", durability]
    broker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert broker.stdin is not None
    assert broker.stdout is not None
    try:
        address = broker.stdout.readline().strip()
        create_topic(address, partitions)
        with idle_ticker() as idle:
            seconds = pour_in_process(address, int(gib * (1 << 30)), partitions)
        broker.stdin.close()
        figures: dict[str, Any] = json.loads(broker.stdout.readline())
        broker.wait(60)
    finally:
        broker.kill()
        broker.wait()
    beside = {
        f"idle_{name}": value for name, value in idle.summary().items() if name in ("own_max_ms", "own_over_50_ms")
    }
    return figures | beside | {"seconds": seconds, "mib_per_second": gib * 1024 / seconds}


def main() -> None:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--durability", choices=["os", "fsync"], default="os")
    parser.add_argument("--data", help="where to write; by default in the system's temporary directory")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        trio.run(serve, arguments.data, arguments.durability)
        return
    with tempfile.TemporaryDirectory(dir=arguments.data) as folder:
        figures = measure(folder, arguments.gib, arguments.partitions, arguments.durability)
    print(f"{arguments.durability}, {arguments.gib:g} GiB over {arguments.partitions} partitions:")
    for name, value in figures.items():
        told = (
            f"{value:10.1f}" if isinstance(value, int | float) else "".join(f"\n    {one}" for one in value) or "none"
        )
        print(f"  {name:<16} {told}")


if __name__ == "__main__":
    main()
