"""`python -m fencepost.testing`: how long a broker under test takes to start on this machine, and its memory."""

import resource
import sys
import time

from fencepost.extras import needed_for

ROUNDS = 20
PLATFORM_BYTES = 1 if sys.platform == "darwin" else 1024
"""The unit of getrusage's memory, in bytes."""


def main() -> None:
    began = time.perf_counter()
    with needed_for("fencepost.testing"):
        from fencepost.testing.broker import Broker

    imported = time.perf_counter()
    with Broker():
        ready = time.perf_counter()
    starts, ends = [], []
    for _ in range(ROUNDS):
        before = time.perf_counter()
        broker = Broker().start()
        started = time.perf_counter()
        broker.close()
        starts.append(started - before)
        ends.append(time.perf_counter() - started)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PLATFORM_BYTES / 1_000_000
    print(f"the first: {_ms(ready - began)} ({_ms(imported - began)} of it imports); {megabytes:.0f} MB in all")
    print(f"a fresh one, median of {ROUNDS}: {_ms(_median(starts))} to start, {_ms(_median(ends))} to end")


def _median(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) // 2]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


if __name__ == "__main__":
    main()
