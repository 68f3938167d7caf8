"""`python -m bench.spark`: reading and writing by Spark, ours beside Spark's Kafka connector; table to bench/out."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.report import Measured, circumstances, table, write
from bench.spark.anchor import Unavailable, jars_of
from bench.spark.installed import installed_python
from bench.spark.job import ANCHOR, OURS, Job
from bench.target import OwnBroker
from bench.workers import create_topic, delete_topic

OUT = Path(__file__).parents[1] / "out"
ROOT = Path(__file__).parents[2]
PARTITIONS = 4
RECORDS = {"100": 1_000_000, "1024": 200_000, "one": 1, "sink": 500_000}
CASES = {
    "sum 100": "batch, 1 M x 100 B: sum of lengths",
    "count 100": "batch, 1 M x 100 B: count",
    "sum 1024": "batch, 200 k x 1 KiB: sum of lengths",
    "count 1024": "batch, 200 k x 1 KiB: count",
    "micro_batch 100": "stream, micro-batches of 250 k x 100 B",
    "start_up one": "batch over one record",
    "stream_start_up one": "stream over one record",
    "sink 100": "write 500 k x 100 B",
}
NAMES = {OURS: "fencepost", ANCHOR: "Spark's Kafka connector"}
JOB_TIMEOUT_SECONDS = 1800


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="any broker; without it a fencepost is started")
    parser.add_argument("--durability", default="os", choices=["os", "fsync"], help="of the broker that is started")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records; 0.1 takes a minute or two")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each; the order turns round each time")
    parser.add_argument("--repeat", type=int, default=2, help="measured runs of each case in one process")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--formats", default=f"{OURS},{ANCHOR}", help="default %(default)s")
    parser.add_argument("--master", default="local[2]", help="default %(default)s")
    parser.add_argument(
        "--pyspark",
        type=Path,
        metavar="DIRECTORY",
        help="another PySpark, for which there is an anchor: `pip install --no-deps --target DIRECTORY pyspark==4.2.0`",
    )
    parser.add_argument("--anchor-version", help="of the connector's jars; without it that of PySpark")
    parser.add_argument("--anchor-jars", help="the jars themselves, with commas between; nothing is fetched")
    parser.add_argument("--zipped", action="store_true", help="workers as in a clone: they compile Spark from its zip")
    parser.add_argument("--quiet-lock", metavar="FILE", help="hold this file's lock (flock) during each process")
    return parser.parse_args()


def fill(bootstrap: str, topic: str, count: int, size: int) -> None:
    """Committed records, in transactions of 100,000."""
    create_topic(bootstrap, topic, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"bench-{os.urandom(4).hex()}",
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
        }
    )
    producer.init_transactions(60)
    noise = os.urandom(1 << 16)
    for begin in range(0, count, 100_000):
        producer.begin_transaction()
        for number in range(begin, min(begin + 100_000, count)):
            at = number * 61 % (len(noise) - size)
            producer.produce(topic, noise[at : at + size], partition=number % PARTITIONS)
            if number % 1000 == 0:
                producer.poll(0)
        producer.commit_transaction(120)


def run_job(job: Job, options: argparse.Namespace, python: str, tell: Callable[[str, dict[str, float]], None]) -> str:
    """One process; returns the version of its Spark. Raises RuntimeError where it fails."""
    paths = [str(options.pyspark.resolve())] if options.pyspark else []
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "PYTHONPATH": os.pathsep.join([*paths, str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "PYSPARK_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment.pop("SPARK_HOME", None)
    command = [sys.executable, "-m", "bench.spark.job", json.dumps(asdict(job))]
    if options.quiet_lock:
        command = ["flock", options.quiet_lock, *command]
    run = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=JOB_TIMEOUT_SECONDS, check=False
    )
    if run.returncode:
        raise RuntimeError(f"{job.format}: {run.stderr[-3000:]}")
    spark = ""
    for line in run.stdout.splitlines():
        told: dict[str, Any] = json.loads(line)
        spark = told.get("version", spark)
        if "case" in told:
            tell(told["case"], told["figures"])
    return spark


def named(case: str, scale: float) -> str:
    """As the table calls it."""
    return CASES[case] + ("" if scale == 1 else f" (x {scale:g})")


def measure(
    options: argparse.Namespace, bootstrap: str, jars: dict[str, str], python: str
) -> tuple[list[Measured], str]:
    """All rounds, with this Python in Spark's workers; the versions of Spark that were met."""
    records = {size: count if size == "one" else round(count * options.scale) for size, count in RECORDS.items()}
    topics = {size: f"bench-spark-{size}-{os.urandom(3).hex()}" for size in records}
    for size, count in records.items():
        if size == "sink":
            create_topic(bootstrap, topics[size], PARTITIONS)
        else:
            fill(bootstrap, topics[size], count, 100 if size == "one" else int(size))
    cases = [case for case, name in CASES.items() if options.only in name for _ in range(options.repeat)]
    measured: list[Measured] = []
    versions: set[str] = set()
    try:
        for number in range(options.rounds):
            formats = list(jars) if number % 2 == 0 else list(jars)[::-1]
            for form in formats:
                job = Job(form, bootstrap, topics, records, cases, options.master, jars[form])

                def tell(case: str, figures: dict[str, float], form: str = form) -> None:
                    shown = ", ".join(f"{value:,.4g} {metric}" for metric, value in figures.items())
                    print(f"{named(case, options.scale):<46} {NAMES[form]:<24} {shown}", flush=True)
                    for metric, value in figures.items():
                        measured.append(Measured(named(case, options.scale), metric, NAMES[form], value))

                versions.add(run_job(job, options, python, tell))
    finally:
        for topic in topics.values():
            delete_topic(bootstrap, topic)
    return measured, ", ".join(sorted(versions))


def jars_by_format(options: argparse.Namespace) -> dict[str, str]:
    """Who takes part, with the jars that each needs; the anchor stays away, with a word, where its cannot be had."""
    jars: dict[str, str] = {}
    for form in options.formats.split(","):
        if form != ANCHOR:
            jars[form] = ""
            continue
        own = version("pyspark")
        if options.pyspark:
            (info,) = options.pyspark.glob("pyspark-*.dist-info")
            own = info.name.removeprefix("pyspark-").removesuffix(".dist-info")
        try:
            jars[form] = options.anchor_jars or jars_of(options.anchor_version or own, OUT / "jars")
        except Unavailable as error:
            print(f"without {NAMES[ANCHOR]}: {error}", file=sys.stderr)
    return jars


def main() -> int:
    """Measure and write the table."""
    options = parse_options()
    jars = jars_by_format(options)
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        broker = None if options.bootstrap else OwnBroker("fencepost", Path(directory), options.durability)
        if broker is not None:
            broker.start()
        began = time.monotonic()
        try:
            python = sys.executable if options.zipped else installed_python(Path(directory) / "installed")
            bootstrap = options.bootstrap or broker.address  # type: ignore[union-attr]
            measured, spark = measure(options, bootstrap, jars, python)
        finally:
            if broker is not None:
                broker.stop()
    command = shlex.join(["python", "-m", "bench.spark", *sys.argv[1:]])
    where = f"{circumstances(command)} Spark {spark}, {options.master}, {time.monotonic() - began:.0f} s in all."
    text = f"{table(measured, [(NAMES[OURS], NAMES[ANCHOR])])}\n\n{where}"
    path = write(OUT, measured, text, "spark-")
    print(f"\n{text}\n\nWritten to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
