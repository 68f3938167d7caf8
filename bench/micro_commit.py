"""What making several files durable at once costs: one after the other, side by side, or through one shared journal.

    python -m bench.micro_commit [--data DIRECTORY] [--rounds 200]

First the bare disk: 300 bytes appended to each file, then made durable. Then whole transactions against a broker, with
the time of EndTxn split into flush rounds and the rest. Each on the disk as it is and on slower ones. The model of a
slow disk: every flush sleeps for so long, in the thread that asked for it, after the real flush; flushes in different
threads overlap, as on an NVMe disk without a protected cache. The journal's side is what it costs at the least: its
bytes are written twice in the end, and settling them into segments is not counted here.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from bench.txn_rounds import measure_transactions
from fencepost.broker.log.durability.sync_threads import SyncThreads
from fencepost.broker.log.storage.disk import SYSTEM_DISK
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.store import StoredFile, SyncTask

PAYLOAD = bytes(300)
FILES = (1, 2, 3, 8, 24)
FLUSH_MS = (0.0, 1.0, 5.0)
HELPERS = (0, 3, 15)
JOURNAL_BYTES = 64 << 20


class SlowDisk:
    """While entered, every flush of this process's stores takes so much longer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._flush = SYSTEM_DISK.fdatasync

    def __enter__(self) -> "SlowDisk":
        if self._seconds:
            SYSTEM_DISK.fdatasync = self._slow  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        SYSTEM_DISK.fdatasync = self._flush

    def _slow(self, fd: int) -> None:
        self._flush(fd)
        time.sleep(self._seconds)


async def median_ms(rounds: int, prepare: Callable[[], Sequence[SyncTask]], threads: SyncThreads) -> float:
    """The median of a round, in ms: writing and flushing."""
    times = []
    for _ in range(rounds + 3):
        began = time.perf_counter()
        failures = await threads.sync(prepare())
        times.append(time.perf_counter() - began)
        assert not failures
    return statistics.median(times[3:]) * 1000


def appender(files: Sequence[StoredFile]) -> Callable[[], Sequence[SyncTask]]:
    """Appends to each file; what to sync then."""

    def prepare() -> list[SyncTask]:
        for file in files:
            file.write(file.size_bytes, PAYLOAD)
        return [target for file in files if (target := file.sync_target()) is not None]

    return prepare


def journal(store: FileStore, count: int) -> Callable[[], Sequence[SyncTask]]:
    """Appends the same bytes, for `count` logs, to a file that has its full size already; what to sync then."""
    file = store.open("journal")
    if not file.size_bytes:
        for at in range(0, JOURNAL_BYTES, 1 << 20):
            file.write(at, bytes(1 << 20))
    position = [0]

    def prepare() -> list[SyncTask]:
        file.write(position[0], PAYLOAD * count)
        position[0] = (position[0] + len(PAYLOAD) * count) % (JOURNAL_BYTES // 2)
        target = file.sync_target()
        assert target is not None
        return [target]

    return prepare


async def measure_disk(folder: Path, rounds: int) -> None:
    """One table per flush latency."""
    store = FileStore(folder / "bare")
    files = [store.open(f"file-{number}") for number in range(max(FILES))]
    names = ["one by one", *(f"{helpers + 1} threads" for helpers in HELPERS[1:]), "as built", "journal"]
    for flush_ms in FLUSH_MS:
        fewer = max(10, int(rounds / (1 + flush_ms)))
        print(f"\nflush latency {flush_ms:g} ms more than this disk's, ms per round (median of {fewer}):")
        print(f"{'files':>6}" + "".join(f"{name:>13}" for name in names))
        for count in FILES:
            cells = []
            with SlowDisk(flush_ms / 1000):
                for helpers in HELPERS:
                    threads = SyncThreads(helpers, worth_seconds=0.0)
                    cells.append(await median_ms(fewer, appender(files[:count]), threads))
                    threads.close()
                threads = SyncThreads()
                cells.append(await median_ms(fewer, appender(files[:count]), threads))
                cells.append(await median_ms(fewer, journal(store, count), threads))
                threads.close()
            print(f"{count:>6}" + "".join(f"{cell:>13.3f}" for cell in cells), flush=True)


async def measure_broker(folder: Path, transactions: int) -> None:
    """EndTxn over some partitions, on each disk."""
    print("\nEndTxn, fsync durability, ms (median); rounds and flushes per whole transaction:")
    print(f"{'flush ms':>9}{'partitions':>12}{'EndTxn':>9}{'in flushes':>12}{'rounds':>8}{'flushes':>9}")
    for flush_ms in FLUSH_MS:
        for partitions in (1, 3, 8):
            place = folder / f"broker-{flush_ms}-{partitions}"
            with SlowDisk(flush_ms / 1000):
                found = await measure_transactions(place, partitions, max(20, int(transactions / (1 + flush_ms))))
            print(
                f"{flush_ms:>9g}{partitions:>12}{found.end_ms:>9.2f}{found.flush_ms:>12.2f}{found.rounds:>8.1f}"
                f"{found.flushes:>9.1f}",
                flush=True,
            )


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="where to write; by default in the system's temporary directory")
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.data) as name:
        folder = Path(os.path.abspath(name))
        trio.run(measure_disk, folder, arguments.rounds)
        trio.run(measure_broker, folder, arguments.rounds)


if __name__ == "__main__":
    main()
