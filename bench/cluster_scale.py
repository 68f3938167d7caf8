"""What limits a cluster at 3, 10 and 100 active brokers: measured costs of the database's statements, and a simulation.

    python -m bench.cluster_scale [--repeat 2000] [--brokers 3 10 100] [--cores 2 8 32]

The costs are CPU seconds of all processes of a PostgreSQL on this machine, for the product's own statements. The
simulation (scale_model.py) lets so many brokers share such a database. Nothing here ran on so many machines.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.scale_model import Cluster, Costs, idle_cores, most_transactions, simulate
from fencepost.broker.cluster.database.postgres import PostgresEngine
from fencepost.broker.cluster.engine import (
    LAST_OFFSET,
    Append,
    Commit,
    Identity,
    NewLog,
    Placement,
    Row,
    RowKind,
    Span,
)
from fencepost.protocol.record_batch import build_batch
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer, find_binaries

LOGS = 1000
TOPIC_ID = bytes(15) + b"\x01"
ROUND_TRIP_S = 0.0005
"""Assumed between machines of one region."""
MANY_BROKERS, LEASE_MS = 100, 10_000


class Measured(NamedTuple):
    """One statement."""

    seconds: float
    """From the question to the answer."""
    cpu: float


class Bench:
    """A database with logs, and one broker's connection."""

    def __init__(self, server: PostgresServer, engine: PostgresEngine, repeat: int) -> None:
        self._server, self.engine, self._repeat = server, engine, repeat
        session = engine.join(1, "{}", LEASE_MS)
        self.identity: Identity = session.identity
        self._seq = session.commit_seq
        self._ends = dict.fromkeys(range(1, LOGS + 1), 0)

    def measure(self, ask: Callable[[], object]) -> Measured:
        """The mean of many, without the first ones."""
        for _ in range(20):
            ask()
        cpu, began = self._cpu(), time.perf_counter()
        for _ in range(self._repeat):
            ask()
        seconds = time.perf_counter() - began
        return Measured(seconds / self._repeat, (self._cpu() - cpu) / self._repeat)

    def commit(self, first: int, count: int) -> None:
        """One inline row of a small batch for each of so many logs."""
        batch = bytes(build_batch([(0, None, bytes(100), ())]))
        appends = []
        for log in range(first, first + count):
            end = self._ends[log]
            new = NewLog(f"t-{log}", TOPIC_ID) if not end else None
            row = Row(0, 1, RowKind.RUN, 0, Placement(0, 0, len(batch)), 0, 1, (log,), batch[:61], b"", batch)
            appends.append(Append(log, end, False, row, new))
            self._ends[log] = end + 1
        self._seq += 1
        self.engine.commit(Commit(self.identity, self._seq, appends))

    def _cpu(self) -> float:
        server = psutil.Process(self._server.pid)
        return sum(sum(one.cpu_times()[:2]) for one in (server, *server.children()))


def measured_costs(bench: Bench) -> tuple[Costs, dict[str, Measured]]:
    """Each statement that brokers send again and again."""
    engine, found = bench.engine, dict[str, Measured]()
    for first in range(1, LOGS, 100):
        bench.commit(first, 100)

    def look() -> None:
        engine.members()
        engine.slots()

    found["look, 1 broker"] = bench.measure(look)
    for number in range(2, MANY_BROKERS + 1):
        engine.join(number, '{"rack": "a", "listeners": {"PLAINTEXT": ["broker", 9092]}}', LEASE_MS)
    found[f"look, {MANY_BROKERS} brokers"] = bench.measure(look)
    found["follow the metadata"] = bench.measure(lambda: engine.many_rows([Span(1, 1, LAST_OFFSET)], True))
    spans = [Span(log, 1, LAST_OFFSET) for log in range(1, 11)]
    found["poll 10 logs"] = bench.measure(lambda: (engine.heads_of(range(1, 11)), engine.many_rows(spans, True)))
    found["renew"] = bench.measure(lambda: engine.renew(bench.identity))
    for rows in (1, 8, 64):
        found[f"commit {rows} rows"] = bench.measure(partial(bench.commit, 100, rows))
    one, many = found["commit 1 rows"], found["commit 64 rows"]
    per_row = max(0.0, many.cpu - one.cpu) / 63
    alone, all_brokers = found["look, 1 broker"], found[f"look, {MANY_BROKERS} brokers"]
    look_per_broker = max(0.0, all_brokers.cpu - alone.cpu) / (MANY_BROKERS - 1)
    costs = Costs(
        look=alone.cpu - look_per_broker,
        look_per_broker=look_per_broker,
        follow=found["follow the metadata"].cpu,
        poll=found["poll 10 logs"].cpu,
        renew=found["renew"].cpu,
        commit=one.cpu - per_row,
        commit_per_row=per_row,
        read=found["poll 10 logs"].cpu,
        flush=max(0.0, one.seconds - one.cpu),
        round_trip=ROUND_TRIP_S,
    )
    return costs, found


def main() -> None:
    """Measure, simulate, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_scale", description=__doc__)
    parser.add_argument("--repeat", type=int, default=2000, help="how often each statement is measured (2000)")
    parser.add_argument("--brokers", type=int, nargs="+", default=[3, 10, 100])
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 8, 32], help="of the database")
    arguments = parser.parse_args()
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is missing"
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresServer(binaries) as server,
        ClusterProcesses(Path(folder), server) as cluster,
    ):
        costs, found = measured_costs(Bench(server, cluster.engine, arguments.repeat))
    for what, one in found.items():
        print(f"{what:24} {1e6 * one.seconds:8.0f} us, CPU {1e6 * one.cpu:6.0f} us")
    print("transactions over 12 partitions; at most 70 % of the database's cores busy, EndTxn's p99 below 50 ms:")
    print(f"{'brokers':>8} {'cores':>6} {'idle':>8} {'most a second':>15} {'EndTxn p50, p99 at half':>26}")
    for brokers in arguments.brokers:
        for cores in arguments.cores:
            case = Cluster(brokers, cores, 0.0)
            most = most_transactions(costs, case)
            half = simulate(costs, case._replace(transactions_per_second=most / 2, seconds=5)) if most else None
            times = f"{half.end_ms(0.5):.1f}, {half.end_ms(0.99):.1f} ms" if half is not None else "-"
            idle = idle_cores(costs, case) / cores
            print(f"{brokers:8} {cores:6} {100 * idle:7.1f}% {most:15.0f} {times:>26}", flush=True)


if __name__ == "__main__":
    main()
