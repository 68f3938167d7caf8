"""Spark reads a cluster: its stores directly, through its broker, and by Spark's own Kafka connector.

    python -m bench.spark.direct [--records 2000000] [--rounds 3]

One broker, PostgreSQL, a directory of objects and Spark (local[2]) share the machine. The records are 100 B, merged. A
run sums the lengths of all values; the ways take turns, and medians are printed, with the broker's CPU time of a run.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pyspark
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from bench.spark.anchor import Unavailable, jars_of
from tests.kit.cluster_processes import ClusterBrokerProcess, ClusterProcesses
from tests.kit.postgres_server import postgres_or_skip
from tests.kit.waiting import until
from tests.kit.wire import Wire

TOPIC, PARTITIONS, RECORD_BYTES = "records", 4, 100
MERGED_S = 600
CACHE = Path(__file__).parents[1] / "out"


def write(broker: ClusterBrokerProcess, records: int) -> None:
    """Fill the topic evenly."""
    with Wire(broker.connect()) as wire:
        wire.create_topic(TOPIC, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 50, "batch.size": 1_000_000})
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, b"%0*d" % (RECORD_BYTES, number), partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def session(version: str) -> tuple[SparkSession, bool]:
    """A session, with this version of Spark's Kafka connector if its jars can be had."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.ui.showConsoleProgress", "false")
    try:
        builder, has_jars = builder.config("spark.jars", jars_of(version, CACHE)), True
    except Unavailable as missing:
        print(f"without Spark's Kafka connector: {missing}", flush=True)
        has_jars = False
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark, has_jars


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--anchor-version", default=pyspark.__version__, help="of Spark's Kafka connector")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_or_skip() as server,
        ClusterProcesses(Path(folder), server) as cluster,
    ):
        broker = cluster.start(1, **{"cluster.merge.interval.ms": "1000"})
        write(broker, arguments.records)
        most = 2 * arguments.records * RECORD_BYTES // PARTITIONS // (8 << 20) + 20
        until(lambda: max(cluster.rows().values()) <= most, what="rows to be merged", seconds=MERGED_S)
        spark, has_jars = session(arguments.anchor_version)
        by_broker = {"kafka.bootstrap.servers": broker.address}
        ways: dict[str, tuple[str, dict[str, str]]] = {
            "direct": (
                "fencepost",
                {"read": "direct", "store": cluster.store, "objects": f"file://{cluster.objects}"},
            ),
            "through the broker": ("fencepost", by_broker),
        }
        if has_jars:
            ways["Spark's Kafka connector"] = "kafka", {**by_broker, "kafka.isolation.level": "read_committed"}
        process, seconds, cpu = psutil.Process(broker.pid), {}, {}
        for number in range(-1, arguments.rounds):
            for way, (kind, options) in list(ways.items())[:: 1 if number % 2 else -1]:
                before, began = sum(process.cpu_times()[:2]), time.monotonic()
                frame = spark.read.format(kind).options(subscribe=TOPIC, startingOffsets="earliest", **options).load()
                (row,) = frame.selectExpr("sum(length(value)) AS bytes").collect()
                assert row.bytes == arguments.records * RECORD_BYTES
                if number >= 0:  # the first one warms up
                    seconds.setdefault(way, []).append(time.monotonic() - began)
                    cpu.setdefault(way, []).append(sum(process.cpu_times()[:2]) - before)
        for way, found in seconds.items():
            middle = statistics.median(found)
            print(
                f"{way:24} {arguments.records / middle:>12,.0f} rows/s, broker CPU {statistics.median(cpu[way]):.2f} s"
            )
        spark.stop()


if __name__ == "__main__":
    main()
