"""The cases: what is loaded, and which numbers come out of one run against one broker."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import cores, workers
from bench.groups import GROUP_LESS_IS_BETTER, changes, heartbeats, rebalances
from bench.members import ConsumerMember
from bench.pour import TOPIC, create_topic, pour_in_process
from bench.raw import RawFetcher, RawProducer, produce_error
from bench.share_groups import BATCH_RECORDS, IN_BATCHES, ONE_BY_ONE, SHARE_LESS_IS_BETTER, accepted, in_flight
from bench.share_members import Poll
from bench.side_by_side import side_by_side
from bench.target import Target
from bench.workers import Job

WARM_UP_REQUESTS = 300
PARKING_SECONDS = 0.002
CORES_WARM_UP_SHARE = 0.2
Result = dict[str, float]
"""Metric -> value of one run."""

CPU = "broker CPU s per million records"
RECORDS = "records/s"
ACKS = "acks/s"
TRANSACTIONS = "transactions/s"
P50, P99 = "ms p50", "ms p99"
LESS_IS_BETTER = {CPU, P50, P99, "ms to the first ack", "MiB", *GROUP_LESS_IS_BETTER, *SHARE_LESS_IS_BETTER}


@dataclass(frozen=True)
class Case:
    """A name for the table, and the run."""

    name: str
    run: Callable[[Target, float], Result]
    with_fsync: bool = False
    """Measured too where the answer waits for the disk."""
    fills_memory: bool = False
    """Most of its cost is pages that are written for the first time: see `bench.memory`."""
    once: bool = False
    """Measured in one round only."""


def _topic(target: Target, partitions: int) -> str:
    topic = f"bench-{os.urandom(4).hex()}"
    workers.create_topic(target.address, topic, partitions)
    return topic


def _loaded(target: Target, kind: str, jobs: list[Job], unit: str) -> Result:
    before = target.cpu_seconds()
    done, elapsed, each = workers.run(kind, jobs)
    after = target.cpu_seconds()
    result = {unit: done / elapsed}
    if each:
        result |= _percentiles(list(each))
    if before is not None and after is not None:
        per = CPU if unit == RECORDS else f"broker CPU ms per {unit.removesuffix('s/s')}"
        result[per] = (after - before) / done * (1e6 if unit == RECORDS else 1e3)
    return result


def produce(
    size_bytes: int, partitions: int, records: int, codec: str = "none", batch_bytes: int | None = None
) -> Callable[[Target, float], Result]:
    """Two processes produce with confluent-kafka's batches, of default size or of `batch_bytes`."""

    def run(target: Target, scale: float) -> Result:
        topic = _topic(target, partitions)
        share = int(records * scale) // 2
        options = _options(batch_bytes) | {"compression.type": codec}
        jobs = [Job(target.address, topic, number, share, size_bytes, partitions, options) for number in range(2)]
        return _loaded(target, "produce", jobs, RECORDS)

    return run


def consume(
    size_bytes: int, partitions: int, records: int, batch_bytes: int | None = None
) -> Callable[[Target, float], Result]:
    """One process reads what was written before, read_committed."""

    def run(target: Target, scale: float) -> Result:
        topic = _topic(target, partitions)
        job = Job(target.address, topic, 0, int(records * scale), size_bytes, partitions, _options(batch_bytes))
        workers.run("produce", [job])
        return _loaded(target, "consume", [job._replace(options={})], RECORDS)

    return run


def fetch(size_bytes: int, partitions: int, records: int, passes: int = 4) -> Callable[[Target, float], Result]:
    """A bare socket reads the same data some times over: what the broker can give, whatever a client can take."""

    def run(target: Target, scale: float) -> Result:
        topic = _topic(target, partitions)
        count = int(records * scale)
        workers.run("produce", [Job(target.address, topic, 0, count, size_bytes, partitions, {})])
        before, size, elapsed = target.cpu_seconds(), 0, 0.0
        for _ in range(passes):
            fetcher = RawFetcher(target.address, topic, partitions)
            began = time.perf_counter()
            while fetcher.records < count:
                fetcher.ask()
                fetcher.take()
            elapsed += time.perf_counter() - began
            size += fetcher.size_bytes
            fetcher.close()
        after = target.cpu_seconds()
        result = {RECORDS: count * passes / elapsed, "MB/s": size / elapsed / 1e6}
        if before is not None and after is not None:
            result[CPU] = (after - before) / (count * passes) * 1e6
        return result

    return run


def _options(batch_bytes: int | None) -> dict[str, Any]:
    return {} if batch_bytes is None else {"batch.size": batch_bytes}


def transactions(producers: int, count: int, partitions: int = 8) -> Callable[[Target, float], Result]:
    """Producer processes side by side, each commits transactions of ten records of 100 bytes, one after the other."""

    def run(target: Target, scale: float) -> Result:
        topic = _topic(target, partitions)
        share = max(10, int(count * scale) // producers)
        jobs = [Job(target.address, topic, number, share, 100, partitions, {}) for number in range(producers)]
        return _loaded(target, "transact", jobs, TRANSACTIONS)

    return run


def one_at_a_time(requests: int, size_bytes: int = 100) -> Callable[[Target, float], Result]:
    """One connection; the next request leaves when the last one is acknowledged (acks=all)."""

    def run(target: Target, scale: float) -> Result:
        producer = RawProducer(target.address, _topic(target, 1), size_bytes)
        producer.begin()
        _answered(producer, WARM_UP_REQUESTS)
        before = target.cpu_seconds()
        started = time.perf_counter()
        times = _answered(producer, int(requests * scale))
        elapsed = time.perf_counter() - started
        after = target.cpu_seconds()
        producer.close()
        result = {ACKS: len(times) / elapsed, **_percentiles(times)}
        if before is not None and after is not None:
            result["broker CPU ms per ack"] = (after - before) / len(times) * 1e3
        return result

    return run


def _answered(producer: RawProducer, count: int) -> list[float]:
    """Seconds of each of `count` round trips. Raises RuntimeError when the last was refused."""
    times = []
    for _ in range(count):
        seconds, answer = producer.round_trip()
        times.append(seconds)
    code = produce_error(answer)
    if code:
        raise RuntimeError(f"produce was answered with error {code}")
    return times


def produce_to_fetch(rounds: int, size_bytes: int = 100) -> Callable[[Target, float], Result]:
    """A fetch waits for data (long poll); from the produce request to the record's arrival at the one who waits."""

    def run(target: Target, scale: float) -> Result:
        topic = _topic(target, 1)
        producer, fetcher = RawProducer(target.address, topic, size_bytes), RawFetcher(target.address, topic, 1)
        producer.begin()
        fetcher.ask()
        before = fetcher.take()
        times = []
        for number in range(-WARM_UP_REQUESTS, int(rounds * scale)):
            fetcher.ask()
            time.sleep(PARKING_SECONDS)  # until the fetch waits in the broker
            sent = time.perf_counter()
            producer.send(producer.frame)
            answer = fetcher.receive()
            if number >= 0:
                times.append(time.perf_counter() - sent)
            fetcher.note(answer)
            producer.receive()
        if fetcher.records != before + WARM_UP_REQUESTS + len(times):
            raise RuntimeError(f"{fetcher.records} records came back, {before} were there before")
        producer.close()
        fetcher.close()
        return _percentiles(times)

    return run


def _percentiles(times: list[float]) -> Result:
    times.sort()
    return {P50: times[len(times) // 2] * 1e3, P99: times[len(times) * 99 // 100] * 1e3}


def large(total_bytes: int, partitions: int = 8) -> Callable[[Target, float], Result]:
    """Requests of 1 MiB, five in flight, until so much is written; what the broker holds then."""

    def run(target: Target, scale: float) -> Result:
        create_topic(target.address, partitions)
        producer = RawProducer(target.address, TOPIC, 100)
        producer.begin()
        producer.close()
        before = target.cpu_seconds()
        seconds = pour_in_process(target.address, int(total_bytes * scale), partitions)
        after = target.cpu_seconds()
        result = memory(target, scale) | {"MB/s": total_bytes * scale / seconds / 1e6}
        if before is not None and after is not None:
            result["broker CPU s per GB"] = (after - before) / (total_bytes * scale) * 1e9
        workers.delete_topic(target.address, TOPIC)
        return result

    return run


def memory(target: Target, scale: float) -> Result:
    """What the broker holds after everything before."""
    held = target.rss_bytes()
    return {} if held is None else {"MiB": held / 2**20}


ONE_AT_A_TIME = "acknowledgements, one at a time, 100 B"
SMALL, LARGE = (100, 1_000_000), (1024, 200_000)
"""Sizes of records in bytes, and how many of them."""
BATCHES = {"default": None, "16 KiB": 16_384}


def _name(kind: str, size_bytes: int, partitions: int, batches: str) -> str:
    size = f"{size_bytes} B" if size_bytes < 1024 else f"{size_bytes // 1024} KiB"
    return f"{kind} {size}, {partitions} partition{'s' * (partitions > 1)}, {batches} batches"


def _grid(kind: str, make: Callable[..., Callable[[Target, float], Result]]) -> list[Case]:
    """Both sizes, one partition and eight, default batches and small ones."""
    return [
        Case(
            _name(kind, size, partitions, label),
            make(size, partitions, records, batch_bytes=batch_bytes),
            fills_memory=make is produce,
        )
        for size, records in (SMALL, LARGE)
        for partitions in (1, 8)
        for label, batch_bytes in BATCHES.items()
    ]


def _workers(how: str, poll: Poll, records: int) -> list[Case]:
    return [
        Case(f"share group, {how}, {count} consumer{'s' * (count > 1)} of 1 partition", accepted(count, records, poll))
        for count in (1, 8, 32)
    ]


CASES = [
    Case(ONE_AT_A_TIME, one_at_a_time(5000), with_fsync=True),
    Case("acknowledgements, 16 connections, 100 B", side_by_side(16, 10_000, _percentiles), with_fsync=True),
    Case("from produce to a waiting fetch, 100 B", produce_to_fetch(2000)),
    *_grid("produce", produce),
    Case("produce 1 KiB, 8 partitions, default batches, lz4", produce(1024, 8, LARGE[1], "lz4"), fills_memory=True),
    *_grid("consume", consume),
    Case("bare fetch 100 B, 8 partitions", fetch(100, 8, SMALL[1])),
    Case("bare fetch 1 KiB, 1 partition", fetch(1024, 1, LARGE[1])),
    Case("transactions of 10 records, 1 producer", transactions(1, 500), with_fsync=True),
    Case("transactions of 10 records, 1 producer, 1 partition", transactions(1, 500, partitions=1), with_fsync=True),
    Case("transactions of 10 records, 8 producers", transactions(8, 2400), with_fsync=True),
    Case("transactions of 10 records, 32 producers", transactions(32, 3200), with_fsync=True),
    Case("1,000 members in 100 groups, a beat every 3 s", heartbeats(3.0, 9.0)),
    Case("1,000 members in 100 groups, a beat every 0.3 s", heartbeats(0.3, 6.0)),
    Case("1,000 members in 100 groups, one of each changes", changes(5)),
    Case("1,000 members in 100 groups rebalance", rebalances(5)),
    Case("1,000 members in 1 group rebalance", rebalances(5, groups=1)),
    Case("1,000 members in 100 groups of KIP-848, a beat every 0.3 s", heartbeats(0.3, 6.0, ConsumerMember)),
    Case("1,000 members in 100 groups of KIP-848, one of each changes", changes(5, ConsumerMember)),
    *_workers("one by one", ONE_BY_ONE, 8_000),
    Case("share group, one by one, 32 consumers, batches of one record", accepted(32, 8_000, ONE_BY_ONE, 1)),
    *_workers("in batches", IN_BATCHES, 400_000),
    Case("share group, a million records in flight, in batches", in_flight(250, BATCH_RECORDS), once=True),
    Case("share group, a million records in flight, one by one", in_flight(250, 1), once=True),
    Case("memory after all this", memory, once=True),
]
LARGE_CASES = [Case("10 GB written", large(10 * 10**9), once=True)]
"""Only where asked for: each takes as much of the disk."""
CORES_CASES = [
    Case("bare fetch 1 KiB, 8 connections", cores.fetches(8000)),
    Case("produce 1 KiB, 8 connections", cores.produces(12_000), fills_memory=True),
    Case("acknowledgements, 32 connections, 100 B", cores.acknowledgements(100_000)),
    Case("transactions over 8 partitions, 1 producer", cores.transactions(1000, 1)),
    Case("transactions over 8 partitions, 32 producers", cores.transactions(4000, 32)),
    Case("transactions of 1 partition, 32 producers", cores.transactions(8000, 32, 1)),
    Case("memory after all this", memory, once=True),
]
"""In place of the others with `--cores`: each connection goes to the leader of its partition."""


def warm_up(target: Target, scale: float, *, on_cores: bool = False) -> None:
    """A little of everything, unmeasured: what compiles or allocates on first use has then done so."""
    if on_cores:
        for case in CORES_CASES:
            case.run(target, scale * CORES_WARM_UP_SHARE)
        return
    for load in (
        produce(100, 8, 300_000),
        produce(1024, 8, 100_000, "lz4"),
        consume(1024, 8, 100_000),
        transactions(4, 400),
        accepted(8, 8_000, ONE_BY_ONE),
        accepted(8, 400_000, IN_BATCHES),
    ):
        load(target, scale)


def start_up(start: Callable[[], Target], stop: Callable[[], None]) -> Result:
    """From the start of the process to the first acknowledged record of a new topic."""
    started = time.perf_counter()
    target = start()
    workers.create_topic(target.address, "bench-start-up", 1)
    producer = RawProducer(cores.leaders(target.address, "bench-start-up")[0], "bench-start-up", 100)
    producer.begin()
    elapsed = time.perf_counter() - started
    producer.close()
    stop()
    return {"ms to the first ack": elapsed * 1e3}
