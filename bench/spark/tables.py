"""A topic into a new table: our export, and Spark's own Kafka source with the writer of Delta Lake or Iceberg.

    python -m bench.spark.tables Delta|Iceberg [--records 1000000] [--rounds 3]

PySpark must be one that has jars of the format (`table_jars.py`) and of Spark's Kafka connector: put its folder into
PYTHONPATH. One broker and one Spark (local[2]) on this machine; the ways take turns, the first turn warms up. Spark's
source runs as a batch, which keeps no position, and as a stream that stops at the end (availableNow), which keeps one,
as our export does. All read what is committed, and write Parquet files with zstd. Medians are printed.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.spark.__main__ import OUT, fill
from bench.spark.anchor import jars_of
from bench.spark.cost import cpu_seconds
from bench.spark.table_jars import table_jars
from bench.target import OwnBroker

RECORD_BYTES = 100
TOPIC = "records"
WAYS = ("fencepost export", "Spark's Kafka source, batch", "Spark's Kafka source, stream")
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.parquet.compression.codec": "zstd",
}
FORMATS = {
    "Delta": {
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "Iceberg": {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


class Tables:
    """The ways of writing, in one session."""

    def __init__(self, form: str, bootstrap: str, place: Path, anchor: str | None) -> None:
        import pyspark
        from pyspark.sql import SparkSession

        os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        jars = [
            jars_of(anchor or pyspark.__version__, OUT / "jars"),
            table_jars(form, pyspark.__version__, OUT / "jars"),
        ]
        builder: Any = SparkSession.builder.master("local[2]").config(map={**CONFIG, **FORMATS[form]})
        if form == "Iceberg":
            builder = builder.config("spark.sql.catalog.lake.warehouse", str(place / "lake"))
        self.spark = builder.config("spark.jars", ",".join(jars)).getOrCreate()
        self._bootstrap, self._place = bootstrap, place
        self._count = 0

    def write(self, way: str, form: str) -> tuple[float, float]:
        """Write the topic into a new table: seconds, and seconds of CPU of Spark and its Python processes."""
        self._count += 1
        run = self._export if way == WAYS[0] else self._batch if way == WAYS[1] else self._stream
        before, began = cpu_seconds(), time.perf_counter()
        rows = run(form, f"t{self._count}")
        seconds, cpu = time.perf_counter() - began, cpu_seconds() - before
        self._rows = rows()
        return seconds, cpu

    @property
    def rows(self) -> int:
        """Of the table that was written last, as Spark's own reader of its format counts them."""
        return self._rows

    def _export(self, form: str, name: str) -> Callable[[], int]:
        from fencepost.spark_pipelines import delta_table, export, iceberg_table, read_table

        if form == "Delta":
            table = delta_table(str(self._place / name))
        else:
            folder = self._place / "catalog"
            folder.mkdir(exist_ok=True)
            properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder.as_uri()}
            table = iceberg_table(f"bench.{name}", catalog="bench", properties=properties)
        list(export(self.spark, [TOPIC], table, kafka={"bootstrap.servers": self._bootstrap}))
        return lambda: int(read_table(self.spark, table).count())

    def _batch(self, form: str, name: str) -> Callable[[], int]:
        frame = self._options(self.spark.read)
        if form == "Delta":
            frame.write.format("delta").save(str(self._place / name))
        else:
            frame.writeTo(f"lake.bench.{name}").create()
        return self._counted(form, name)

    def _stream(self, form: str, name: str) -> Callable[[], int]:
        reader = self._options(self.spark.readStream.option("maxOffsetsPerTrigger", "1000000"))
        writer = reader.writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self._place / f"{name}-checkpoint"))
        if form == "Delta":
            query = writer.format("delta").start(str(self._place / name))
        else:
            columns = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in reader.schema.fields)
            self.spark.sql(f"CREATE TABLE lake.bench.{name} ({columns}) USING iceberg")
            query = writer.format("iceberg").toTable(f"lake.bench.{name}")
        query.awaitTermination()
        return self._counted(form, name)

    def _options(self, reader: Any) -> Any:
        reader = reader.format("kafka").option("kafka.bootstrap.servers", self._bootstrap)
        reader = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest")
        return reader.option("kafka.isolation.level", "read_committed").load()

    def _counted(self, form: str, name: str) -> Callable[[], int]:
        def count() -> int:
            if form == "Delta":
                return int(self.spark.read.format("delta").load(str(self._place / name)).count())
            return int(self.spark.table(f"lake.bench.{name}").count())

        return count


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark.tables", description=__doc__.splitlines()[0])
    parser.add_argument("format", choices=list(FORMATS))
    parser.add_argument("--records", type=int, default=1_000_000, help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="measured turns; default %(default)s")
    parser.add_argument("--anchor-version", help="of Spark's Kafka connector; without it that of PySpark")
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory:
        place = Path(directory)
        broker = OwnBroker("fencepost", place, "os")
        broker.start()
        try:
            fill(broker.address, TOPIC, options.records, RECORD_BYTES)
            tables = Tables(options.format, broker.address, place, options.anchor_version)
            for number in range(-1, options.rounds):
                for way in WAYS[:: 1 if number % 2 else -1]:
                    seconds, cpu = tables.write(way, options.format)
                    assert tables.rows == options.records, f"{way}: {tables.rows} rows"
                    print(f"{number} {way}: {seconds:.2f} s, CPU {cpu:.2f} s", file=sys.stderr, flush=True)
                    if number >= 0:
                        found.setdefault(way, []).append((seconds, cpu))
            version = tables.spark.version
            tables.spark.stop()
        finally:
            broker.stop()
    print(report(options.format, found, options.records, version))


def report(form: str, found: dict[str, list[tuple[float, float]]], records: int, version: str) -> str:
    """The table: medians."""
    lines = [f"| Spark {version}, {form} | rows/s | CPU s per million rows |", "|---|---:|---:|"]
    for way in WAYS:
        rate = records / statistics.median(seconds for seconds, _ in found[way])
        cpu = statistics.median(cost for _, cost in found[way]) / records * 1e6
        lines.append(f"| {way} | {rate:,.0f} | {cpu:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
