"""Compares a table, or an exported directory, with the committed records of its topics, row by row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.offsets import EARLIEST, Offsets, OffsetTree, offsets_of, tree_of
from fencepost.spark_connector.source.options import parse_options
from fencepost.spark_pipelines.errors import PipelineError
from fencepost.spark_pipelines.export_store import manifests
from fencepost.spark_pipelines.exporting import read_export, read_records
from fencepost.spark_pipelines.progress import Advance, watching
from fencepost.spark_pipelines.shape import Shape
from fencepost.spark_pipelines.tables.spark import read_table
from fencepost.spark_pipelines.tables.table import Table
from fencepost.spark_pipelines.tables.table_store import begin_mark, end_mark, positions

_EXAMPLES = 5
_PLACE = ("topic", "partition", "offset")


@dataclass(frozen=True)
class TableReport:
    """What the comparison found: rows that are missing in the table, and rows that are there too often or wrongly."""

    table: str
    begin: OffsetTree
    """The first compared offset by topic and partition: the start of the export, or of the log if that is later."""
    end: OffsetTree
    """Up to where the table says that it is exported."""
    rows: int
    """Rows that the topics' committed records give."""
    rows_in_table: int
    missing: int
    extra: int
    examples: Sequence[str]
    """A few of these rows as JSON."""

    @property
    def sound(self) -> bool:
        """Whether the table holds each row exactly once, and nothing else."""
        return self.missing == self.extra == 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "examples": list(self.examples), "sound": self.sound}


def audit_table(
    spark: Any,
    topics: Sequence[str],
    table: Table | Path | str,
    *,
    kafka: Mapping[str, Any],
    shape: Shape | None = None,
    headers: bool = False,
    advance: Advance | None = None,
) -> TableReport:
    """Compare an exported table or directory with its topics; needs the same topics, shape and headers as the export.

    It reads the committed records from where the export began to where the table says that it ended, and the table's
    rows, and counts equal rows of both. Records that retention has deleted meanwhile are left out on both sides, which
    needs the columns topic, partition and offset. Raises PipelineError, BrokerError and Spark's errors.
    """
    options = {f"kafka.{name}": str(value) for name, value in kafka.items()}
    cluster = Cluster(parse_options({"subscribe": ",".join(topics), **options}).connection)
    try:
        found = cluster.topics(topics)
        partitions = [TopicPartition(name, number) for name in topics for number in found.get(name, ())]
        begin, end = _exported(table, partitions)
        kept = cluster.list_offsets(dict.fromkeys(end, EARLIEST), IsolationLevel.READ_COMMITTED)
    finally:
        cluster.close()
    start = {tp: min(end[tp], max(begin[tp], kept[tp])) for tp in end}
    deleted = {tp: start[tp] for tp in end if start[tp] > begin[tp]}
    expected = (shape or Shape()).applied(read_records(spark, options, start, end, headers=headers))
    with watching(spark, advance) if advance is not None else nullcontext():
        there = read_export(spark, table) if isinstance(table, str | Path) else read_table(spark, table)
        return _compared(table, expected, there, start, end, deleted)


def _exported(table: Table | Path | str, partitions: Sequence[TopicPartition]) -> tuple[Offsets, Offsets]:
    """Where the export began and ended. Raises PipelineError if nothing was exported."""
    if isinstance(table, str | Path):
        batches = manifests(table)
        begin: Offsets = {}
        for batch in reversed(batches):
            begin |= offsets_of(batch.begin)
        end = batches[-1].ends() if batches else {}
    else:
        marks = table.marks([name for tp in partitions for name in (begin_mark(tp), end_mark(tp))])
        begin, end = positions(marks, partitions, begin_mark), positions(marks, partitions, end_mark)
    end = {tp: offset for tp, offset in end.items() if tp in begin and tp in partitions}
    if not end:
        raise PipelineError(f"{_name(table)} holds no export of {', '.join({tp.topic for tp in partitions})}")
    return begin, end


def _compared(
    table: Table | Path | str, expected: Any, there: Any, start: Offsets, end: Offsets, deleted: Offsets
) -> TableReport:
    from pyspark.sql import functions as F

    lacking = [name for name in expected.columns if name not in there.columns]
    if lacking:
        raise PipelineError(f"{_name(table)} has no column {', '.join(lacking)}: name the shape of the export")
    actual = there.select([F.col(f"`{one.name}`").cast(one.dataType).alias(one.name) for one in expected.schema])
    if deleted:
        if not set(_PLACE) <= set(expected.columns):
            raise PipelineError(
                f"retention deleted records of {min(deleted)} that were exported, and the table has no columns"
                f" {', '.join(_PLACE)} to leave them out"
            )
        gone = F.lit(False)
        for tp, first in deleted.items():
            gone |= (F.col("topic") == tp.topic) & (F.col("partition") == tp.partition) & (F.col("offset") < first)
        actual = actual.where(~gone)
    sides = expected.select("*", F.lit(1).alias("side")).unionAll(actual.select("*", F.lit(-1).alias("side")))
    one = F.sum(F.when(F.col("side") == 1, 1).otherwise(0))
    other = F.sum(F.when(F.col("side") == -1, 1).otherwise(0))
    counted = sides.groupBy(*[f"`{name}`" for name in expected.columns]).agg(one.alias("one"), other.alias("other"))
    difference = F.col("one") - F.col("other")
    row = counted.agg(
        F.sum("one"), F.sum("other"), F.sum(F.greatest(difference, F.lit(0))), F.sum(F.greatest(-difference, F.lit(0)))
    ).first()
    rows, rows_there, missing, extra = (int(count or 0) for count in row)
    examples: list[str] = []
    if missing or extra:
        named = [
            F.col(f"`{field.name}`").cast("string").alias(field.name)
            if field.dataType.typeName() == "binary"
            else F.col(f"`{field.name}`")
            for field in expected.schema
        ]
        found = counted.where(difference != 0).select(F.to_json(F.struct(*named)).alias("row"), "one", "other")
        examples = [_example(row.row, row.one, row.other) for row in found.limit(_EXAMPLES).collect()]
    return TableReport(_name(table), tree_of(start), tree_of(end), rows, rows_there, missing, extra, examples)


def _example(row: str, in_topics: int, in_table: int) -> str:
    return f"{json.loads(row)}: {in_topics} in the topics, {in_table} in the table"


def _name(table: Table | Path | str) -> str:
    return str(table) if isinstance(table, str | Path) else table.name
