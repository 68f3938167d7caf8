"""A Spark driver that runs one pipeline after the other on command, and that stops where it is to be killed.

    python -m tests.spark.pipeline_driver '{"bootstrap": ..., "input": ..., "directory": ...}'

Each line of its standard input is the name of a pipeline, which takes what is committed then; the file `answer` in its
own directory (POINTS_AT) says how that ended. Points are in four kinds of processes: planning, tasks, the sink's
commit, and this one. Where a process comes to the point that the file `wanted` there names, it says so with the file
`reached`, and waits until `wanted` is gone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from fencepost.spark_connector.data_source import BatchReader, FencepostDataSource
from fencepost.spark_connector.sink.sink import Messages, StreamWriter, stream_writer
from fencepost.spark_connector.sink.task import Written
from fencepost.spark_connector.source.limited_stream import StreamReader
from fencepost.spark_pipelines import Table, append_exactly_once, etl, export
from fencepost.spark_pipelines.tables.table import Marks, NewFile, SeenMarks
from tests.spark.sink_driver import new_session
from tests.spark.sink_points import LANE_POINTS, arm
from tests.spark.tables_kit import table_in

POINTS_AT = "FENCEPOST_PIPELINE_POINTS"
BATCH_ROWS = 800
_LOOK_SECONDS = 0.02


@dataclass
class Places:
    """Where all pipelines read, and where each has its output and its checkpoint."""

    bootstrap: str
    input: str
    directory: str

    def text(self) -> str:
        """As the command line takes it."""
        return json.dumps(asdict(self))

    def checkpoint(self, pipeline: str) -> Path:
        """Spark's directory."""
        return self.output(pipeline) / "checkpoint"

    def output(self, pipeline: str) -> Path:
        """The pipeline's own directory."""
        return Path(self.directory) / pipeline

    def topic(self, pipeline: str) -> str:
        """The target of a sink."""
        return f"{self.input}-{pipeline}"


def reached(point: str) -> None:
    """Wait here for the fault, if it is wanted here and not at an earlier or a later time that this is called."""
    directory = Path(os.environ[POINTS_AT])
    try:
        wanted, time_wanted = json.loads((directory / "wanted").read_text())
    except FileNotFoundError:
        return
    if wanted != point or not _is_time(directory, time_wanted):
        return
    (directory / "reached").touch()
    while (directory / "wanted").exists():
        time.sleep(_LOOK_SECONDS)


def _is_time(directory: Path, wanted: int) -> bool:
    """Whether this is that time; the processes of a driver count together."""
    for number in range(1, wanted + 1):
        try:
            (directory / f"time-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return number == wanted
    return False


class _Pausing:
    """A reader with points; Spark's tasks import it by its name."""

    def partitions(self, *bounds: Any) -> Any:
        reached("planning")
        found = super().partitions(*bounds)  # type: ignore[misc]
        reached("planned")
        return found

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):  # type: ignore[misc]
            yield batch
            reached("reading")


class PausingBatch(_Pausing, BatchReader):
    """The reader of a batch query."""


class PausingStream(_Pausing, StreamReader):
    """The reader of a stream."""


class PausingWriter(StreamWriter):
    """The sink's writer, with the points of its tasks and of its commit."""

    def write(self, iterator: Iterator[Any]) -> Written:
        """One task."""
        written = super().write(iterator)
        reached("prepared")
        return written

    def commit(self, messages: Messages, batchId: int) -> None:
        """In a process of its own."""
        wanted = Path(os.environ[POINTS_AT]) / "wanted"
        point = json.loads(wanted.read_text())[0] if wanted.exists() else ""
        if point in LANE_POINTS:
            arm(point, lambda: reached(point))
        super().commit(messages, batchId)
        reached("committed")


class PausingSource(FencepostDataSource):
    """The data source, as this driver registers it."""

    def reader(self, schema: StructType) -> Any:
        """The reader that stops."""
        return _as(PausingBatch, super().reader(schema))

    def streamReader(self, schema: StructType) -> Any:
        """The reader that stops."""
        return _as(PausingStream, super().streamReader(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> PausingWriter:
        """The writer that stops."""
        made = stream_writer(self.options, schema)
        return PausingWriter(made._options, made._columns)


def _as(kind: type, made: Any) -> Any:
    made.__class__ = kind
    return made


class PausingTable:
    """A table with points around its commit."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def append(self, files: Sequence[NewFile], marks: Marks, seen: SeenMarks) -> None:
        """The commit."""
        reached("staged")
        self._table.append(files, marks, seen)
        reached("committed")


class Pipelines:
    """Each takes what is committed when it is called, in micro-batches of BATCH_ROWS."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._kafka = {"bootstrap.servers": places.bootstrap}
        self._spark = new_session("pipelines")
        self._spark.dataSource.register(PausingSource)

    def warm_up(self) -> None:
        """Load what every pipeline needs; a broker that is killed meanwhile is no matter."""
        with suppress(PySparkException, Py4JError):
            reader = self._spark.read.format("fencepost").option("subscribe", self._places.input)
            reader.option("kafka.bootstrap.servers", self._places.bootstrap).load().limit(1).collect()

    def run(self, name: str) -> None:
        """Run one to its end. Raises what ended it."""
        kind, _, variant = name.partition("-")
        {"source": self._source, "sink": self._sink, "export": self._export, "append": self._append}[kind](
            name, variant
        )

    def _source(self, name: str, _: str) -> None:
        """A file for each micro-batch; a micro-batch that is run again has the same rows."""
        output = self._places.output(name)

        def keep(frame: Any, batch: int) -> None:
            rows = [(row.partition, row.offset, row.key.decode(), row.value.decode()) for row in frame.collect()]
            text = json.dumps(sorted(rows))
            place = output / f"batch-{batch}.json"
            if place.exists() and place.read_text() != text:
                (output / f"changed-{batch}.json").write_text(text)
            fresh = place.with_suffix(f".{os.getpid()}")
            fresh.write_text(text)
            reached("staged")
            fresh.replace(place)
            reached("committed")

        self._for_each_batch(name, keep)

    def _sink(self, name: str, variant: str) -> None:
        etl(
            self._spark,
            [self._places.input],
            self._places.topic(name),
            kafka=self._kafka,
            checkpoint=self._places.checkpoint(name),
            max_records=BATCH_ROWS,
            sink={"twoPhase": str(variant == "lanes").lower()},
        ).awaitTermination()

    def _export(self, name: str, table_format: str) -> None:
        table = self._table(name, table_format)
        for _ in export(self._spark, [self._places.input], table, kafka=self._kafka, batch_records=BATCH_ROWS):
            pass

    def _append(self, name: str, table_format: str) -> None:
        table = self._table(name, table_format)
        self._for_each_batch(name, lambda frame, batch: append_exactly_once(frame, batch, table, writer_id="kills"))

    def _table(self, name: str, table_format: str) -> Any:
        return PausingTable(table_in(self._places.output(name), table_format))

    def _for_each_batch(self, name: str, function: Any) -> None:
        reader = self._spark.readStream.format("fencepost").option("subscribe", self._places.input)
        reader = reader.option("kafka.bootstrap.servers", self._places.bootstrap).option("startingOffsets", "earliest")
        frame = reader.option("maxRecordsPerTrigger", BATCH_ROWS).load()
        writer = frame.writeStream.foreachBatch(function).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self._places.checkpoint(name))).start().awaitTermination()


def main(text: str) -> None:
    """Run what is asked for until standard input ends."""
    directory = Path(os.environ[POINTS_AT])
    pipelines = Pipelines(Places(**json.loads(text)))
    pipelines.warm_up()
    print("started", flush=True)
    for line in sys.stdin:
        try:
            pipelines.run(line.strip())
            failure = ""
        except Exception as error:  # noqa: BLE001 - whatever ended it is the answer
            failure = f"{type(error).__name__}: {error}"
        fresh = directory / "answer.new"
        fresh.write_text(failure)
        fresh.replace(directory / "answer")


if __name__ == "__main__":
    from tests.spark import pipeline_driver  # the workers import it by this name

    pipeline_driver.main(sys.argv[1])
