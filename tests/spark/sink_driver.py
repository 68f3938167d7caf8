"""A Spark driver of its own process that copies one topic to another exactly once, and that can be killed at a point.

    python -m tests.spark.sink_driver '{"bootstrap": ..., "input": ..., "output": ..., "checkpoint": ..., ...}'

`die_at` names the point in the commit of batch `die_in` at which everything dies: this process, its JVM and the worker
that commits. `flaky` makes the first attempt at each batch's first task fail once all is written. It ends by itself
when everything that was in the input at its start is copied.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql.types import StructType

from fencepost.spark_connector.data_source import FencepostDataSource
from fencepost.spark_connector.sink.sink import Messages, StreamWriter, stream_writer
from fencepost.spark_connector.sink.task import Written
from tests.spark.sink_points import arm

_PLAN = "FENCEPOST_SINK_DRIVER"


@dataclass
class Plan:
    """What a driver does, and how it dies."""

    bootstrap: str
    input: str
    output: str
    checkpoint: str
    batch_rows: int = 200
    two_phase: bool = False
    flaky: bool = False
    die_at: str = ""
    die_in: int = -1
    group: int = 0
    sink: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """As the command line takes it."""
        return json.dumps(asdict(self))


def plan() -> Plan:
    """The plan of this process's driver; workers inherit it."""
    return Plan(**json.loads(os.environ[_PLAN]))


def die() -> None:
    """Everything of this driver at once, as when its machine loses power."""
    os.killpg(plan().group, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class DyingWriter(StreamWriter):
    """The sink's writer, with the points."""

    def write(self, iterator: Iterator[Any]) -> Written:
        """The first task of a flaky driver's batch fails once, after all it does."""
        written = super().write(iterator)
        context = self._context()
        if plan().flaky and context.partitionId() == 0 and context.attemptNumber() == 0:
            raise RuntimeError("this attempt is to fail")
        if written.batch is not None:
            self._reached("prepared", written.batch.batch_id)
        return written

    def commit(self, messages: Messages, batchId: int) -> None:
        """Dies where the plan says."""
        wanted = plan()
        if batchId == wanted.die_in:
            arm(wanted.die_at, die)
        super().commit(messages, batchId)
        self._reached("committed", batchId)

    def _reached(self, point: str, batch: int) -> None:
        wanted = plan()
        if (wanted.die_at, wanted.die_in) == (point, batch):
            die()


class DyingSource(FencepostDataSource):
    """The data source, as this driver registers it."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:
        """The writer that dies."""
        made = stream_writer(self.options, schema)
        return DyingWriter(made._options, made._columns)


def new_session(name: str) -> Any:
    """A session of two cores, whose tasks may fail twice."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2,3]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def run(wanted: Plan) -> None:
    """Copy until all that is there is there."""
    session = new_session("sink driver")
    session.dataSource.register(DyingSource)
    frame = (
        session.readStream.format("fencepost")
        .option("kafka.bootstrap.servers", wanted.bootstrap)
        .option("subscribe", wanted.input)
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", wanted.batch_rows)
        .load()
    )
    query = (
        frame.select("key", "value")
        .writeStream.format("fencepost")
        .option("kafka.bootstrap.servers", wanted.bootstrap)
        .option("topic", wanted.output)
        .option("twoPhase", str(wanted.two_phase).lower())
        .options(**wanted.sink)
        .option("checkpointLocation", wanted.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    print("started", flush=True)
    query.awaitTermination()
    print("done", flush=True)


def main(text: str) -> None:
    """Run the plan in a process group of this process's own."""
    wanted = Plan(**json.loads(text))
    wanted.group = os.getpgrp()
    os.environ[_PLAN] = wanted.text()
    run(wanted)


if __name__ == "__main__":
    from tests.spark import sink_driver  # the workers import it by this name

    sink_driver.main(sys.argv[1])
