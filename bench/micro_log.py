"""What one append and one read cost: microseconds per batch through `PartitionLog`, without network or fsync.

    python bench/micro_log.py [--batches 20000] [--records 100] [--value-bytes 100]

Rates depend on the machine and its load; compare lines of one run with each other.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.directory import LogDirectory
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.reading import read_batches
from fencepost.protocol.batch_header import set_producer
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.topics import IsolationLevel, TopicPartition

NOW_MS = 1_700_000_000_000


def timed(label: str, count: int, step: Callable[[int], None]) -> None:
    """Run `step` `count` times and print the mean in microseconds."""
    begin = time.perf_counter()
    for number in range(count):
        step(number)
    print(f"{label:<44} {(time.perf_counter() - begin) / count * 1e6:8.2f} us")


def appends(log: PartitionLog, batches: list[bytearray]) -> Callable[[int], None]:
    """A step that appends the next batch; each batch goes in once, as from a socket."""

    def step(number: int) -> None:
        info = log.append(batches[number], AppendOrigin.CLIENT, NOW_MS)
        assert not info.error, info

    return step


def prepared(count: int, template: bytes, records: int, idempotent: bool) -> list[bytearray]:
    """Copies of one batch, numbered as one producer would where `idempotent`."""
    batches = [bytearray(template) for _ in range(count)]
    if idempotent:
        for number, batch in enumerate(batches):
            set_producer(batch, 0, 7, 0, number * records)
    return batches


def measure(where: str | None, durability: str, arguments: argparse.Namespace) -> None:
    """One table for one kind of store."""
    value = b"v" * arguments.value_bytes
    template = bytes(build_batch([(NOW_MS, None, value, ())] * arguments.records))
    directory = LogDirectory.open(where, durability="os" if durability == "os" else "fsync")
    count = arguments.batches
    name = "memory" if where is None else durability
    print(f"{name}: batches of {arguments.records} records, {len(template)} bytes")
    for partition, idempotent in enumerate((False, True)):
        log = directory.create(TopicPartition("bench", partition), bytes(16), LogConfig())
        batches = prepared(count, template, arguments.records, idempotent)
        timed(f"  append, {'idempotent' if idempotent else 'plain'}", count, appends(log, batches))
    log.advance_high_watermark(log.log_end_offset)
    step_records = arguments.records
    for isolation in IsolationLevel:

        def tail(number: int, isolation: IsolationLevel = isolation) -> None:
            read_batches(log, (count - 1 - number % 100) * step_records, 1 << 16, isolation)

        def middle(number: int, isolation: IsolationLevel = isolation) -> None:
            read_batches(log, number * 7919 % count * step_records, 1 << 20, isolation)

        timed(f"  read at the tail, {isolation.name.lower()}", 5000, tail)
        timed(f"  read 1 MiB anywhere, {isolation.name.lower()}", 2000, middle)
    directory.close()


def main() -> None:
    """Measure memory, then files without fsync."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--records", type=int, default=100)
    parser.add_argument("--value-bytes", type=int, default=100)
    arguments = parser.parse_args()
    measure(None, "os", arguments)
    with tempfile.TemporaryDirectory() as folder:
        measure(f"{folder}/os", "os", arguments)
        measure(f"{folder}/fsync", "fsync", arguments)


if __name__ == "__main__":
    main()
