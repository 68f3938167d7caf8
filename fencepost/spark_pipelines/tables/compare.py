"""Compares a table, or an exported directory, with the committed records of its topics, row by row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.offsets import EARLIEST, Offsets, OffsetTree, offsets_of, tree_of
from fencepost.spark_connector.source.options import parse_options
from fencepost.spark_pipelines.errors import PipelineError
from fencepost.spark_pipelines.export_store import manifests
from fencepost.spark_pipelines.exporting import check_unchanged, description_of, identity_of, read_export, read_records
from fencepost.spark_pipelines.progress import Advance, watching
from fencepost.spark_pipelines.shape import Shape
from fencepost.spark_pipelines.tables.spark import frame_of
from fencepost.spark_pipelines.tables.table import Table
from fencepost.spark_pipelines.tables.table_store import TableStore, begin_mark, end_mark, positions

_EXAMPLES = 5
_PLACE = ("topic", "partition", "offset")
_SIDE, _ONE, _OTHER = "fencepost side", "fencepost in topics", "fencepost in table"


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
        return self.missing == self.extra == 0

    def as_dict(self) -> dict[str, Any]:
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
    shape = shape or Shape()
    cluster_id, topic_ids = identity_of(kafka, topics)
    cluster = Cluster(parse_options({"subscribe": ",".join(topics), **options}).connection)
    try:
        found = cluster.topics(topics)
        partitions = [TopicPartition(name, number) for name in topics for number in found.get(name, ())]
        what = description_of(topics, shape, headers)
        exported = _exported(spark, table, partitions, what, cluster_id, topic_ids)
        kept = cluster.list_offsets(dict.fromkeys(exported.end, EARLIEST), IsolationLevel.READ_COMMITTED)
    finally:
        cluster.close()
    begin, end = exported.begin, exported.end
    start = {tp: min(end[tp], max(begin[tp], kept[tp])) for tp in end}
    deleted = {tp: start[tp] for tp in end if start[tp] > begin[tp]}
    expected = shape.applied(read_records(spark, options, start, end, headers=headers))
    with watching(spark, advance) if advance is not None else nullcontext():
        return _compared(table, expected, exported.frame, start, end, deleted)


class _Exported(NamedTuple):
    """The rows of an export at one moment, and where it began and ended then."""

    begin: Offsets
    end: Offsets
    frame: Any


def _exported(
    spark: Any,
    table: Table | Path | str,
    partitions: Sequence[TopicPartition],
    what: dict[str, Any],
    cluster_id: str,
    topic_ids: dict[str, str],
) -> _Exported:
    """Raises PipelineError if nothing was exported, or something else."""
    if isinstance(table, str | Path):
        batches = manifests(table)
        if batches:
            check_unchanged(table, batches[-1], what, cluster_id, topic_ids)
        begin: Offsets = {}
        for batch in reversed(batches):
            begin |= offsets_of(batch.begin)
        end = batches[-1].ends() if batches else {}
        frame = read_export(spark, table).where(f"batch <= {batches[-1].batch}") if batches else None
    else:
        TableStore(table).last(partitions, what, cluster_id, topic_ids)
        contents = table.contents([name for tp in partitions for name in (begin_mark(tp), end_mark(tp))])
        begin, end = (positions(contents.marks, partitions, name) for name in (begin_mark, end_mark))
        frame = frame_of(spark, contents)
    end = {tp: offset for tp, offset in end.items() if tp in begin and tp in partitions}
    if not end:
        raise PipelineError(f"{_name(table)} holds no export of {', '.join({tp.topic for tp in partitions})}")
    return _Exported(begin, end, frame)


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
    expected, actual = _lists_are_not_null(expected), _lists_are_not_null(actual)
    sides = expected.select("*", F.lit(1).alias(_SIDE)).unionAll(actual.select("*", F.lit(-1).alias(_SIDE)))
    one = F.sum(F.when(F.col(_SIDE) == 1, 1).otherwise(0))
    other = F.sum(F.when(F.col(_SIDE) == -1, 1).otherwise(0))
    counted = sides.groupBy(*[f"`{name}`" for name in expected.columns]).agg(one.alias(_ONE), other.alias(_OTHER))
    difference = F.col(_ONE) - F.col(_OTHER)
    row = counted.agg(
        F.sum(_ONE), F.sum(_OTHER), F.sum(F.greatest(difference, F.lit(0))), F.sum(F.greatest(-difference, F.lit(0)))
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
        found = counted.where(difference != 0).select(F.to_json(F.struct(*named)).alias("row"), _ONE, _OTHER)
        examples = [
            f"{json.loads(row)}: {in_topics} in the topics, {in_table} in the table"
            for row, in_topics, in_table in found.limit(_EXAMPLES).collect()
        ]
    return TableReport(_name(table), tree_of(start), tree_of(end), rows, rows_there, missing, extra, examples)


def _lists_are_not_null(frame: Any) -> Any:
    """Empty lists in place of null ones, as pyiceberg reads null lists (of headers, for example) as empty."""
    from pyspark.sql import functions as F

    def column(one: Any) -> Any:
        found = F.col(f"`{one.name}`")
        if one.dataType.typeName() == "array":
            found = F.coalesce(found, F.array().cast(one.dataType))
        return found.alias(one.name)

    return frame.select([column(one) for one in frame.schema])


def _name(table: Table | Path | str) -> str:
    return str(table) if isinstance(table, str | Path) else table.name
