"""One connector in a process of its own with a Spark of its own: the cases asked for, as JSON lines on stdout."""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.spark.cost import cpu_seconds

MICRO_BATCH_RECORDS = 250_000
OURS, ANCHOR = "fencepost", "kafka"


@dataclass
class Job:
    """What a process is to do. `topics` by case's size: "100", "1024", "one" (a single record), "sink"."""

    format: str
    bootstrap: str
    topics: dict[str, str]
    records: dict[str, int]
    cases: list[str]
    master: str = "local[2]"
    jars: str = ""
    extra: dict[str, str] = field(default_factory=dict)
    """Further options of the source."""


class Bench:
    """The cases; each returns its figures by name."""

    def __init__(self, job: Job) -> None:
        from pyspark.sql import SparkSession

        self.job = job
        builder = (
            SparkSession.builder.master(job.master)
            .appName("fencepost bench")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "2g")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.log.level", "ERROR")
        )
        if job.jars:
            builder = builder.config("spark.jars", job.jars)
        self.spark = builder.getOrCreate()

    # What is measured

    def count(self, size: str) -> dict[str, float]:
        """How many records, by a batch query."""
        return self._rows(size, lambda: int(self._batch(size).count()))

    def sum(self, size: str) -> dict[str, float]:
        """The bytes of all values, by a batch query."""
        expected = self.job.records[size] * int(size)

        def run() -> int:
            (row,) = self._batch(size).selectExpr("sum(length(value)) AS bytes", "count(value) AS n").collect()
            assert row.bytes == expected, f"{row.bytes} bytes instead of {expected}"
            return int(row.n)

        return self._rows(size, run)

    def micro_batch(self, size: str) -> dict[str, float]:
        """A stream in micro-batches of 250,000 records; the median of those behind the first."""
        records = min(MICRO_BATCH_RECORDS, self.job.records[size] // 4)
        with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as place:
            reader = self._options(self.spark.readStream.format(self.job.format), size)
            frame = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(records)).load()
            writer = frame.selectExpr("length(value) AS bytes").writeStream.format("noop")
            before = cpu_seconds()
            query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
            query.awaitTermination()
            cost = cpu_seconds() - before
            found = [one for one in query.recentProgress if one.numInputRows]
        rows = sum(one.numInputRows for one in found)
        assert rows == self.job.records[size], f"{rows} rows of {self.job.records[size]}"
        warm = [one.durationMs["triggerExecution"] / 1000 for one in found[1:] if one.numInputRows >= records * 0.9]
        seconds = statistics.median(warm)
        return {"s per micro-batch": seconds, "CPU s per million rows": cost / rows * 1e6}

    def start_up(self, size: str) -> dict[str, float]:
        """A batch query over one record, in a session that is warm: what a query costs before it reads."""
        return self._timed(lambda: self._batch("one").count(), lambda seconds: {"s per query": seconds})

    def stream_start_up(self, size: str) -> dict[str, float]:
        """The same of a stream over one record, from start to end."""

        def run() -> None:
            with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as place:
                reader = self._options(self.spark.readStream.format(self.job.format), "one")
                writer = reader.option("startingOffsets", "earliest").load().writeStream.format("noop")
                writer.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()

        return self._timed(run, lambda seconds: {"s per query": seconds})

    def sink(self, size: str) -> dict[str, float]:
        """Rows made by Spark itself, written by a batch query: ours in one transaction, the anchor at least once."""
        count = self.job.records["sink"]
        rows = self.spark.range(0, count, 1, 4).selectExpr(
            "cast(cast(id AS string) AS binary) AS key", f"cast(lpad(id, {size}, '0') AS binary) AS value"
        )

        def run() -> int:
            writer = rows.write.format(self.job.format).mode("append").option("topic", self.job.topics["sink"])
            writer.option("kafka.bootstrap.servers", self.job.bootstrap).save()
            return count

        return self._rows("sink", run)

    # How

    def _options(self, reader: Any, size: str) -> Any:
        reader = reader.option("kafka.bootstrap.servers", self.job.bootstrap)
        reader = reader.option("subscribe", self.job.topics[size]).options(**self.job.extra)
        return reader.option("kafka.isolation.level", "read_committed")

    def _batch(self, size: str) -> Any:
        return self._options(self.spark.read.format(self.job.format), size).load()

    def _rows(self, size: str, run: Callable[[], int]) -> dict[str, float]:
        found: list[int] = []

        def figures(seconds: float) -> dict[str, float]:
            assert found[0] == self.job.records[size], f"{found[0]} rows of {self.job.records[size]}"
            return {"rows/s": found[0] / seconds}

        told = self._timed(lambda: found.append(run()), figures)
        return told | {"CPU s per million rows": told.pop("CPU s") / found[0] * 1e6}

    def _timed(self, run: Callable[[], Any], figures: Callable[[float], dict[str, float]]) -> dict[str, float]:
        before, began = cpu_seconds(), time.perf_counter()
        run()
        seconds = time.perf_counter() - began
        return figures(seconds) | {"CPU s": cpu_seconds() - before}


@contextmanager
def quiet_stdout() -> Iterator[Any]:
    """Spark prints what it likes; the figures go where the standard output was."""
    real = sys.stdout
    sys.stdout = sys.stderr
    try:
        yield real
    finally:
        sys.stdout = real


def main() -> int:
    """Do each case once unmeasured where it comes first, then as often as it stands in the list."""
    job = Job(**json.loads(sys.argv[1]))
    with quiet_stdout() as out:
        bench = Bench(job)
        warm: set[str] = set()
        for case in job.cases:
            name, _, size = case.partition(" ")
            if case not in warm:
                warm.add(case)
                getattr(bench, name)(size)
            print(json.dumps({"case": case, "figures": getattr(bench, name)(size)}), file=out, flush=True)
        print(json.dumps({"version": bench.spark.version}), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
