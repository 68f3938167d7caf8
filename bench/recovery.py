"""How long a broker takes to come back after kill -9 in the middle of a flood of writes.

    python -m bench.recovery [--gib 10] [--partitions 1 8] [--durability os] [--request-bytes 1048576] [--data DIR]

Writes at full speed, kills the process while requests are under way, starts it again, and tells when its ready line
came and when every partition had answered a fetch of its first batch and a produce. Needs room for what it writes, and
removes it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence

from bench.pour import (
    PRODUCE_VERSION,
    REQUEST_BYTES,
    TOPIC,
    Pipe,
    create_topic,
    pour,
    request_frames,
)
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic

FETCH_VERSION = 11
READY_PREFIX = "fencepost ready on "


def start(data: str, durability: str) -> tuple[subprocess.Popen[str], str, float]:
    """Start a broker; the process, its address, and the seconds until its ready line."""
    began = time.monotonic()
    command = [sys.executable, "-m", "fencepost", "serve", "--data", data, "--listen", "127.0.0.1:0"]
    broker = subprocess.Popen(
        [*command, "--durability", durability, "--log-level", "warning"], stdout=subprocess.PIPE, text=True
    )
    assert broker.stdout is not None
    line = broker.stdout.readline()
    if not line.startswith(READY_PREFIX):
        raise RuntimeError("the broker did not start")
    return broker, line.removeprefix(READY_PREFIX).split()[0], time.monotonic() - began


def flood_and_kill(data: str, gib: float, partitions: int, durability: str, request_bytes: int) -> float:
    """Write until `gib` are acknowledged, and kill the broker while more is on its way; MiB acknowledged per second."""
    broker, address, _ = start(data, durability)
    create_topic(address, partitions)
    wanted = int(gib * (1 << 30))
    enough = threading.Event()
    began = time.monotonic()

    def told(answered_bytes: int) -> None:
        if answered_bytes >= wanted:
            enough.set()

    def run() -> None:
        try:
            pour(address, 2 * wanted, range(partitions), request_bytes, told=told)
        except OSError:
            enough.set()  # the end of the broker is what this waits for

    writer = threading.Thread(target=run)
    writer.start()
    enough.wait()
    seconds = time.monotonic() - began
    broker.kill()
    broker.wait()
    writer.join()
    return wanted / (1 << 20) / seconds


def first_answers(address: str, partitions: Sequence[int]) -> None:
    """A fetch and a produce on every partition; raises where one is refused."""
    pipe = Pipe(address)
    frames = request_frames(partitions, 1000, 100)
    for partition, frame in zip(partitions, frames, strict=True):
        wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=0, topics=topics)
        pipe.send(ApiKey.FETCH, FETCH_VERSION, request)
        found = pipe.answer(ApiKey.FETCH, FETCH_VERSION).responses[0].partitions[0]  # type: ignore[attr-defined]
        assert not found.error_code, found
        assert found.records, f"partition {partition} is empty"
        pipe.socket.sendall(frame)
        answer = pipe.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
        assert not answer.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]
    pipe.socket.close()


def measure(folder: str, gib: float, partitions: int, durability: str, request_bytes: int) -> None:
    """One flood, one kill, one start; prints one line."""
    data = os.path.join(folder, f"data-{partitions}")
    rate = flood_and_kill(data, gib, partitions, durability, request_bytes)
    broker, address, ready_seconds = start(data, durability)
    try:
        began = time.monotonic()
        first_answers(address, range(partitions))
        answered_seconds = time.monotonic() - began
    finally:
        broker.kill()
        broker.wait()
    print(
        f"{durability}, {gib:g} GiB over {partitions} partitions in requests of {request_bytes} bytes, "
        f"{rate:.0f} MiB/s: ready after {ready_seconds:.2f} s, "
        f"every partition read and written after {answered_seconds:.2f} s more",
        flush=True,
    )


def main() -> None:
    """Measure once for each number of partitions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--durability", choices=["os", "fsync"], default="os")
    parser.add_argument("--request-bytes", type=int, default=REQUEST_BYTES)
    parser.add_argument("--data", help="where to write; by default in the system's temporary directory")
    arguments = parser.parse_args()
    for partitions in arguments.partitions:
        with tempfile.TemporaryDirectory(dir=arguments.data) as folder:
            measure(folder, arguments.gib, partitions, arguments.durability, arguments.request_bytes)


if __name__ == "__main__":
    main()
