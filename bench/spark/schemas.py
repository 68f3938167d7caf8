"""`python -m bench.spark.schemas`: rows/s of from_registry and to_registry in each format, in one Spark."""

import argparse
import os
import sys
import time
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fencepost.spark_connector.schemas import from_registry, to_registry
from tests.kit.schema_registry import SchemaRegistry
from tests.kit.schemas import open_format

FORMATS = ("avro", "json", "protobuf")


def seconds(frame: Any, runs: int) -> float:
    """The best of some runs, behind one to warm up."""
    found = []
    for _ in range(runs + 1):
        begun = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        found.append(time.perf_counter() - begun)
    return min(found[1:])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark.schemas", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="default %(default)s")
    parser.add_argument("--runs", type=int, default=2, help="measured runs of each case; the best counts")
    options = parser.parse_args()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.range(0, options.rows, 1, 2)
    print(f"| Spark {spark.version} | from_registry, rows/s | to_registry, rows/s |\n|---|---:|---:|")
    with SchemaRegistry() as registry:
        for name in FORMATS:
            with open_format(name, registry.url) as form:
                frame = form.serializer(form.order, SerializationContext(name, MessageField.VALUE))
            named: dict[str, Any] = {"registry": registry.url, "subject": f"{name}-value"}
            # It depends on the row: Spark must not take the column for a constant.
            frames = rows.select(F.when(F.col("id") >= 0, F.lit(frame)).alias("value"))
            orders = rows.select(F.struct("id", F.lit("green tea").alias("item")).alias("order"))
            read = seconds(frames.select(from_registry("value", **named)), options.runs)
            written = seconds(orders.select(to_registry("order", **named)), options.runs)
            print(f"| {name} | {options.rows / read:,.0f} | {options.rows / written:,.0f} |", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
