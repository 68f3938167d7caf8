"""Exactly-once ETL between topics: committed records in, one transaction per micro-batch out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fencepost.spark_pipelines.errors import PipelineError
from fencepost.spark_pipelines.shape import Shape

SINK_COLUMNS = {"key", "value", "headers", "partition", "topic", "timestamp"}
"""The columns of a record. Only `value` is required."""
PASSED_ON = ("key", "value")
"""The columns that go to the target if the shape does not change columns. Headers follow if they are read."""


def etl(
    spark: Any,
    sources: Sequence[str],
    target: str | None,
    *,
    kafka: Mapping[str, Any],
    checkpoint: Path | str,
    to_kafka: Mapping[str, Any] | None = None,
    shape: Shape | None = None,
    headers: bool = False,
    starting: str = "earliest",
    every: str | None = None,
    max_records: int | None = None,
    sink: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Any:
    """Start a streaming query that reads topics, transforms the records and writes them to `target`; returns the query.

    The query processes every source record exactly once, even if it is killed and started again. Its position is in
    `checkpoint`. The number of the micro-batch is committed in the same transaction as the records.

    `target` None means that the column `topic` names each record's topic. With `every` ("10 seconds") the query runs
    until it is stopped. Without it the query ends after the records that were committed at its start. `max_records`
    limits a micro-batch. `sink` holds further options of the sink.

    Raises PipelineError for a shape that Spark rejects or whose columns cannot become records.
    """
    reader = spark.readStream.format("fencepost").options(**_options(kafka))
    reader = reader.option("subscribe", ",".join(sources)).option("startingOffsets", starting)
    if headers:
        reader = reader.option("includeHeaders", "true")
    if max_records is not None:
        reader = reader.option("maxRecordsPerTrigger", str(max_records))
    records = (shape or Shape()).applied(reader.load())
    if shape is None or not shape.changes_columns:
        records = records.select(*PASSED_ON, *(("headers",) if headers else ()))
    require_record_columns(records, target)
    writer = records.writeStream.format("fencepost").options(**_options(to_kafka or kafka))
    writer = writer.options(**(sink or {})).option("checkpointLocation", str(Path(checkpoint).resolve()))
    if target is not None:
        writer = writer.option("topic", target)
    if name is not None:
        writer = writer.queryName(name)
    writer = writer.trigger(processingTime=every) if every is not None else writer.trigger(availableNow=True)
    return writer.start()


def require_record_columns(records: Any, target: str | None) -> None:
    """Raise PipelineError unless the columns can become records."""
    columns = list(records.columns)
    unknown = [name for name in columns if name not in SINK_COLUMNS]
    if "value" not in columns or unknown:
        what = f"a record has no column {unknown[0]}" if unknown else "the column value is missing"
        raise PipelineError(
            f"{what}: the shape returns {', '.join(columns) or 'no column'}. A record needs value; key, headers,"
            " partition, topic and timestamp are optional. to_json(struct(...)) AS value makes one column of several"
        )
    if target is None and "topic" not in columns:
        raise PipelineError("the records have no target: name a topic, or add a column topic")


def _options(kafka: Mapping[str, Any]) -> dict[str, str]:
    return {f"kafka.{name}": str(value) for name, value in kafka.items()}
