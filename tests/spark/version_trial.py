"""Tries the connector in this process's Spark; prints what works as one line of JSON: WAY BOOTSTRAP DIRECTORY."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession, functions

from fencepost.spark_connector.schemas import avro_schema_of, from_registry, to_registry
from fencepost.spark_pipelines import delta_table, iceberg_table
from fencepost.sync import Client
from tests.kit.schema_registry import SchemaRegistry


class Trial:
    """The same work for each version and way, on topics of its own."""

    def __init__(self, way: str, bootstrap: str, scratch: str) -> None:
        self.way, self.bootstrap, self.scratch = way, bootstrap, scratch
        builder: Any = SparkSession.builder
        if way == "connect":
            builder = builder.remote("local[2]")
        elif way == "classic":
            builder = builder.master("local[2]")  # else spark-submit names the master
        settings = {"ui.enabled": "false", "driver.host": "127.0.0.1", "driver.bindAddress": "127.0.0.1"}
        for name, value in settings.items():
            builder = builder.config(f"spark.{name}", value)
        self.spark: Any = builder.getOrCreate()
        self.found: dict[str, str] = {}
        with Client(bootstrap) as kafka:
            with kafka.admin() as admin:
                admin.create_topics("in", partitions=2, if_not_exists=True)
            with kafka.transactional_producer("trial") as producer, producer.transaction() as txn:
                txn.send_many("in", [(None, b"%d" % number) for number in range(100)])
        self.kafka = {"kafka.bootstrap.servers": bootstrap}

    def tries(self, name: str, work: Callable[[], bool]) -> None:
        """Note whether it works."""
        try:
            answer = "yes" if work() else "wrong rows"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            causes = [line for line in str(error).splitlines() if "Error" in line]
            answer = "refused" if "OptionError" in str(error) else (causes or [repr(error)])[-1][:200]
        self.found[f"{self.way}: {name}"] = answer

    def count(self, topic: str) -> int:
        """The committed records of a topic."""
        return int(self.spark.read.format("fencepost").options(**self.kafka, subscribe=topic).load().count())

    def _stream(self, **options: str) -> Any:
        named = {**self.kafka, "subscribe": "in", "startingOffsets": "earliest", **options}
        return self.spark.readStream.format("fencepost").options(**named).load()

    def written(self, topic: str, times: int = 2, **options: str) -> bool:
        """A stream to a topic, that is started again."""
        for _ in range(times):
            sink = {**self.kafka, "topic": topic, "checkpointLocation": f"{self.scratch}/{self.way}-{topic}"}
            writer = (
                self._stream(**options).select("value", "timestamp").writeStream.format("fencepost").options(**sink)
            )
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination(300)
            failed = query.exception()
            if failed is not None:
                raise failed
        return self.count(topic) == 100

    def batch(self) -> bool:
        """A batch read, and a batch write."""
        frame = self.spark.range(7).selectExpr("cast(id AS string) AS value")
        topic = f"batch-{self.way}"
        frame.write.format("fencepost").options(**self.kafka, topic=topic).mode("append").save()
        return self.count(topic) == 7 and self.count("in") >= 100

    def for_each_batch(self) -> bool:
        """The function for foreachBatch, called twice for each batch."""
        topic, kafka, way = f"each-{self.way}", self.kafka, self.way

        def twice(frame: Any, number: int) -> None:
            from fencepost.spark_connector import write_exactly_once

            named = {"query_id": "trial"} if way == "connect" else {}
            for _ in range(2):
                write_exactly_once(
                    frame.select("value"), number, transactional_id=topic, options={**kafka, "topic": topic}, **named
                )

        writer = self._stream().writeStream.foreachBatch(twice).option("checkpointLocation", f"{self.scratch}/{topic}")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(300)
        failed = query.exception()
        if failed is not None:
            raise failed
        return self.count(topic) == 100

    def filtered(self) -> bool:
        """A filter that is pushed down; with Spark 4.0 the option is refused."""
        self.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        try:
            reader = self.spark.read.format("fencepost").options(**self.kafka, subscribe="in")
            every = {(row.partition, row.offset) for row in reader.load().select("partition", "offset").collect()}
            used = max(partition for partition, _ in every)
            query = f"partition = {used} AND offset < 5 AND timestamp > current_timestamp() - INTERVAL 1 DAY"
            pushed = reader.option("pushFilters", "true").load().where(query).select("partition", "offset").collect()
            return {tuple(row) for row in pushed} == {one for one in every if one[0] == used and one[1] < 5}
        finally:
            self.spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    def schemas(self) -> bool:
        """Rows to Avro with a registry and back, and a record that is none."""
        with SchemaRegistry() as registry:
            rows = self.spark.sql(
                "SELECT id, struct(id, timestamp_seconds(id) AS at, map('a', array(id, null)) AS m, "
                "if(id = 1, null, struct(cast(id AS decimal(9, 2)) AS d)) AS s) AS row FROM range(7)"
            )
            named: dict[str, Any] = {"registry": registry.url, "subject": "rows"}
            text = avro_schema_of(rows.schema["row"].dataType)
            written = to_registry("row", schema=text, register=True, **named)
            frames = rows.select("id", "row", functions.when(functions.col("id") != 5, written).alias("value"))
            broken = frames.select("id", "row", functions.coalesce("value", functions.lit(b"x")).alias("value"))
            read = broken.select("id", "row", from_registry("value", on_error="keep", **named).alias("read"))
            found = read.select("id", "row", "read.*").orderBy("id").collect()
        return all(row.value == (None if row.id == 5 else row.row) for row in found) and bool(found[5].error.reason)

    def view(self) -> bool:
        """SQL."""
        options = f"OPTIONS (`kafka.bootstrap.servers` '{self.bootstrap}', subscribe 'in')"
        self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING fencepost {options}").collect()
        return int(self.spark.sql("SELECT count(*) FROM v").collect()[0][0]) >= 100

    def table(self, table: Any) -> bool:
        """An export into a table, its audit, and an append for each batch, called twice."""
        from fencepost.spark_pipelines import append_exactly_once, audit_table, export

        kafka = {"bootstrap.servers": self.bootstrap}
        for _ in range(2):
            list(export(self.spark, ["in"], table, kafka=kafka, batch_records=50))
        report = audit_table(self.spark, ["in"], table, kafka=kafka)
        frame = self.spark.range(5).selectExpr("id AS offset", "cast(cast(id AS string) AS binary) AS value")
        for _ in range(2):
            append_exactly_once(frame, 0, table, writer_id="trial", query_id="trial")
        after = audit_table(self.spark, ["in"], table, kafka=kafka)
        return report.sound and report.rows >= 100 and (after.missing, after.extra) == (0, 5)


def main() -> None:
    """Try everything."""
    trial = Trial(*sys.argv[1:])
    trial.tries("batch, read and written", trial.batch)
    trial.tries("stream to a topic, started again", lambda: trial.written(f"copy-{trial.way}"))
    trial.tries("`write_exactly_once` in foreachBatch", trial.for_each_batch)
    trial.tries(
        "`maxRecordsPerTrigger` and the other limits",
        lambda: trial.written(f"few-{trial.way}", maxRecordsPerTrigger="30"),
    )
    trial.tries("`pushFilters`", trial.filtered)
    trial.tries("SQL: a temporary view", trial.view)
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{trial.scratch}/{trial.way}.db",
        "warehouse": f"file://{trial.scratch}",
    }
    trial.tries("table of Delta Lake", lambda: trial.table(delta_table(f"{trial.scratch}/delta-{trial.way}")))
    trial.tries(
        "table of Iceberg",
        lambda: trial.table(iceberg_table(f"lake.{trial.way}", catalog="trial", properties=catalog)),
    )
    trial.tries("`from_registry`, `to_registry`", trial.schemas)
    print(json.dumps(trial.found), flush=True)
    trial.spark.stop()


if __name__ == "__main__":
    main()
