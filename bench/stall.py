"""How long the event loop stands still while gigabytes are written at full speed: a 5 ms ticker beside the broker.

    python -m bench.stall [--gib 10] [--partitions 1] [--durability os] [--data DIRECTORY]

A gap is how much later than asked the ticker woke. What the thread spent waiting for a processor (run_delay of
/proc/PID/schedstat) is told apart, because other work on the machine makes it, not the broker. For each gap above 50 ms
it also says how long the broker's other threads were without a processor: one of them may have held what the event loop
waited for. Needs room for what it writes, and removes it.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import trio

from bench.pour import create_topic, pour_in_process

TICK_SECONDS = 0.005
STALL_SECONDS = 0.05


class Ticker:
    """Wakes every 5 ms and notes how late."""

    def __init__(self) -> None:
        self.gaps: list[tuple[float, float]] = []
        """(seconds late, of which the thread was ready and had no processor)."""
        self.stalls: list[tuple[float, float]] = []
        """(own seconds of a gap above 50 ms, those that another thread was ready meanwhile and had no processor)."""
        self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._others: dict[str, int] = {}

    async def run(self) -> None:
        """Tick until cancelled."""
        ran, delayed, others = trio.current_time(), self._delay_seconds(), self._others_delays()
        while True:
            await trio.sleep(TICK_SECONDS)
            now, waited = trio.current_time(), self._delay_seconds()
            gap, delay = max(0.0, now - ran - TICK_SECONDS), waited - delayed
            self.gaps.append((gap, delay))
            before, others = others, self._others_delays()
            if gap - delay > STALL_SECONDS:
                self.stalls.append(
                    (gap - delay, max((others[one] - before.get(one, 0.0) for one in others), default=0.0))
                )
            ran, delayed = trio.current_time(), self._delay_seconds()

    def summary(self) -> dict[str, Any]:
        """The figures of all ticks."""
        own = sorted(max(0.0, gap - delay) for gap, delay in self.gaps)
        raw = sorted(gap for gap, _ in self.gaps)
        return {
            "ticks": len(raw),
            "max_ms": raw[-1] * 1000,
            "own_p99_ms": own[int(len(own) * 0.99)] * 1000,
            "own_p999_ms": own[int(len(own) * 0.999)] * 1000,
            "own_max_ms": own[-1] * 1000,
            "own_over_50_ms": sum(gap > STALL_SECONDS for gap in own),
            "stalls": [f"{own * 1000:.0f} ms ({others * 1000:.0f} without)" for own, others in self.stalls],
        }

    def _delay_seconds(self) -> float:
        return _delay_of(self._schedstat)

    def _others_delays(self) -> dict[str, float]:
        """Of each other thread of this process by its id."""
        present = set(os.listdir("/proc/self/task")) - {str(threading.get_native_id())}
        for gone in self._others.keys() - present:
            os.close(self._others.pop(gone))
        for new in present - self._others.keys():
            with contextlib.suppress(FileNotFoundError):
                self._others[new] = os.open(f"/proc/self/task/{new}/schedstat", os.O_RDONLY)
        delays = {}
        for one, fd in self._others.items():
            with contextlib.suppress(ProcessLookupError):  # it ended in this very moment
                delays[one] = _delay_of(fd)
        return delays


def _delay_of(schedstat: int) -> float:
    """Seconds that a thread was ready and had no processor, from its open file of statistics."""
    return int(os.pread(schedstat, 100, 0).split()[1]) / 1e9


def rss_mib() -> float:
    """Resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


async def serve(data: str, durability: str) -> None:
    """A broker with a ticker beside it; says its address, and the ticker's figures when standard input ends."""
    from fencepost.broker.config import load_config
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


def measure(folder: str, gib: float, partitions: int, durability: str) -> dict[str, Any]:
    """One run on a fresh directory."""
    command = [sys.executable, "-m", "bench.stall", "--serve", "--data", f"{folder}/data", "--durability", durability]
    broker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert broker.stdin is not None
    assert broker.stdout is not None
    try:
        address = broker.stdout.readline().strip()
        create_topic(address, partitions)
        seconds = pour_in_process(address, int(gib * (1 << 30)), partitions)
        broker.stdin.close()
        figures: dict[str, Any] = json.loads(broker.stdout.readline())
        broker.wait(60)
    finally:
        broker.kill()
        broker.wait()
    return figures | {"seconds": seconds, "mib_per_second": gib * 1024 / seconds}


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
        print(f"  {name:<16} " + (f"{value:10.1f}" if isinstance(value, int | float) else ", ".join(value) or "none"))


if __name__ == "__main__":
    main()
