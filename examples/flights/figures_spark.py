"""Spark Structured Streaming over the topic, read_committed: flights and mean departure delay per carrier and month."""

import argparse
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from examples.flights.dataset import FLIGHTS_TOPIC
from examples.flights.events import tell
from examples.flights.table import write_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TABLE = "figures"
RESTARTS_MAX = 5


def open_session() -> "SparkSession":
    """A local Spark that finds the data source by itself, through the `pyspark_fencepost` package."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.streaming.metricsEnabled": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("fencepost flights")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def figures(session: "SparkSession", bootstrap: str) -> "DataFrame":
    """The query: nothing in it knows of transactions, because the source shows only what committed."""
    from pyspark.sql import functions as F

    flights = (
        session.readStream.format("fencepost")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", FLIGHTS_TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    flight = F.from_json(F.col("value").cast("string"), "carrier STRING, month INT, dep_delay DOUBLE").alias("flight")
    return (
        flights.select(flight)
        .groupBy("flight.carrier", "flight.month")
        .agg(F.count("*").alias("flights"), F.avg("flight.dep_delay").alias("mean_delay_minutes"))
    )


def start(session: "SparkSession", bootstrap: str, checkpoint: str) -> "StreamingQuery":
    """Micro-batches a second apart, from where the checkpoint stands."""
    return (
        figures(session, bootstrap)
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName(TABLE)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )


class Run:
    """One query over its restarts."""

    def __init__(self, session: "SparkSession", bootstrap: str, checkpoint: str) -> None:
        self._session = session
        self._where = (bootstrap, checkpoint)
        self._rows_of_batch: dict[int, int] = {}
        self._restarts = 0
        self._query = start(session, *self._where)

    def until(self, no_more_input: threading.Event) -> list[dict[str, Any]]:
        """Work along until no more input comes and all of it is used; return the table."""
        while not no_more_input.wait(0.5):
            self._look()
        while not self._used_up():
            self._look()
        self._look()
        self._query.stop()
        return [row.asDict() for row in self._session.table(TABLE).collect()]

    def _used_up(self) -> bool:
        from pyspark.errors import StreamingQueryException

        try:
            self._query.processAllAvailable()
        except StreamingQueryException as error:
            self._restart(error)
            return False
        return True

    def _look(self) -> None:
        if not self._query.isActive:
            self._restart(self._query.exception())
        for progress in self._query.recentProgress:
            self._rows_of_batch[progress["batchId"]] = progress["numInputRows"]
        tell("figures-progress", rows=sum(self._rows_of_batch.values()), batches=len(self._rows_of_batch))

    def _restart(self, error: BaseException | None) -> None:
        """A query may end when the broker dies under it; the checkpoint says where it goes on."""
        self._restarts += 1
        if self._restarts > RESTARTS_MAX:
            raise RuntimeError(f"the query failed {self._restarts} times") from error
        print(f"restarting the query after: {error}", file=sys.stderr, flush=True)
        tell("figures-restarted", why=str(error).splitlines()[0] if error else "it ended")
        time.sleep(1)
        self._query = start(self._session, *self._where)


def main() -> None:
    """Run the query until standard input has a line or ends, and tell the table; after the next one, write a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--table", help="write the totals into a Delta table here when they are complete")
    options = parser.parse_args()
    no_more_input, totals_are_complete = threading.Event(), threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        no_more_input.set()
        sys.stdin.readline()
        totals_are_complete.set()

    threading.Thread(target=listen, daemon=True).start()
    session = open_session()
    run = Run(session, options.bootstrap, options.checkpoint)
    tell("figures-started", by=f"Spark {session.version}")
    table = run.until(no_more_input)
    tell("figures", rows=table)
    if options.table is not None:
        totals_are_complete.wait()
        tell("table", **write_table(session, options.bootstrap, options.table))
    session.stop()


if __name__ == "__main__":
    main()
