"""The whole audit: in this process, or with Spark's tasks for the reading."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.source.options import parse_options
from fencepost.spark_connector.source.store_settings import StoreSettings
from fencepost.spark_pipelines.auditing.bounds import Bounds
from fencepost.spark_pipelines.auditing.cluster import plan_cluster, range_facts
from fencepost.spark_pipelines.auditing.coordinators import compacted_topics, explain_open
from fencepost.spark_pipelines.auditing.directories import locked, plan_directories, segment_facts
from fencepost.spark_pipelines.auditing.facts import SCHEMA, Fact, arrow_schema
from fencepost.spark_pipelines.auditing.findings import AuditReport, PartitionReport
from fencepost.spark_pipelines.auditing.owners import with_owners
from fencepost.spark_pipelines.auditing.plan import Piece, Plan, RangePiece, StorePiece
from fencepost.spark_pipelines.auditing.rules import PartitionAudit

if TYPE_CHECKING:
    from collections.abc import Iterable

Advance = Callable[[int, int], None]
"""The callback for progress: the amount read and the total, in bytes of directories or in offsets of a broker."""

_ROWS = 10_000


def _ignore(done: int, total: int) -> None: ...


def audit(
    topics: Sequence[str] = (),
    *,
    kafka: Mapping[str, Any] | None = None,
    directories: Sequence[Path | str] = (),
    stores: StoreSettings | None = None,
    spark: Any = None,
    advance: Advance = _ignore,
) -> AuditReport:
    """Check that topics hold each record exactly once.

    The audit reads from a running broker, fencepost or Apache Kafka, from data directories of stopped brokers, or from
    the stores of a cluster as they are at one instant. `kafka` holds Kafka's dotted names, at least
    "bootstrap.servers". No topics means all that are not internal; with `stores` it means all. With `spark` the
    session's tasks read. Without it this process reads, which is quicker up to about 100 MB.

    Raises PipelineError if there is nothing to read or a broker runs on a directory. Raises BrokerError or KafkaError
    if a broker does not respond, StoreUnavailable if a store does not; OSError.
    """
    began = time.monotonic()
    _need_one(kafka, directories, stores)
    if kafka is not None:
        report = _of_cluster(topics, kafka, spark, advance)
    elif stores is not None:
        report = _of_stores(topics, stores, spark, advance)
    else:
        paths = [Path(one) for one in directories]
        with locked(paths):
            plan = plan_directories(paths, topics)
            report = _execute(plan, spark, advance)
        for one in report.partitions:
            with_owners(one, plan.owners or {})
    report.seconds = time.monotonic() - began
    return report


def batches(
    spark: Any,
    topics: Sequence[str] = (),
    *,
    kafka: Mapping[str, Any] | None = None,
    directories: Sequence[Path | str] = (),
    stores: StoreSettings | None = None,
) -> Any:
    """The audit's input as a DataFrame: a row for each batch, marker and aborted transaction.

    The columns are those of `auditing.facts.Fact`. The brokers of directories must stay stopped while it is used.
    """
    _need_one(kafka, directories, stores)
    if stores is not None:
        from fencepost.spark_pipelines.auditing.stores import plan_stores

        plan = plan_stores(stores, topics).plan
    elif kafka is not None:
        plan = plan_cluster(_connection(kafka), topics, _tasks(spark))
    else:
        plan = plan_directories([Path(one) for one in directories], topics)
    return _frame(spark, plan)


def _need_one(kafka: object, directories: Sequence[object], stores: object) -> None:
    if (kafka is not None) + bool(directories) + (stores is not None) != 1:
        raise ValueError("set one of kafka, directories and stores")


def _of_stores(topics: Sequence[str], stores: StoreSettings, spark: Any, advance: Advance) -> AuditReport:
    from fencepost.spark_pipelines.auditing.stores import plan_stores

    planned = plan_stores(stores, topics)
    report = _execute(planned.plan, spark, advance)
    planned.complete(report.partitions)
    return report


def _of_cluster(topics: Sequence[str], kafka: Mapping[str, Any], spark: Any, advance: Advance) -> AuditReport:
    pieces_per_partition = 1 if spark is None else _tasks(spark)
    plan = plan_cluster(_connection(kafka), topics, pieces_per_partition)
    compacted = compacted_topics(kafka, {tp.topic for tp in plan.bounds})
    plan.bounds = {tp: replace(bounds, compacted=tp.topic in compacted) for tp, bounds in plan.bounds.items()}
    report = _execute(plan, spark, advance)
    explain_open(kafka, report.partitions)
    return report


def _connection(kafka: Mapping[str, Any]) -> Any:
    options = {f"kafka.{name}": str(value) for name, value in kafka.items()}
    return parse_options({"subscribe": "any", **options}).connection


def _tasks(spark: Any) -> int:
    return int(spark.sparkContext.defaultParallelism)


def _execute(plan: Plan, spark: Any, advance: Advance) -> AuditReport:
    reports = _in_process(plan, advance) if spark is None else _with_spark(plan, spark, advance)
    report = AuditReport(plan.source, sorted(reports, key=lambda one: (one.topic, one.partition)))
    if plan.rules is not None:
        report.rules = plan.rules
    return report


def facts_of(piece: Piece) -> Iterator[Fact]:
    if isinstance(piece, StorePiece):
        from fencepost.spark_pipelines.auditing.store_scan import store_facts

        return store_facts(piece)
    return range_facts(piece) if isinstance(piece, RangePiece) else segment_facts(piece)


# In this process


def _in_process(plan: Plan, advance: Advance) -> list[PartitionReport]:
    total, done = sum(piece.size_bytes for piece in plan.pieces), 0
    advance(done, total)
    reports = []
    for tp, bounds in plan.bounds.items():
        audited = PartitionAudit(tp.topic, tp.partition, bounds)
        for piece in plan.pieces_of(tp):
            for fact in facts_of(piece):
                audited.take(fact)
            done += piece.size_bytes
            advance(done, total)
        reports.append(audited.finish())
    return reports


# By Spark


def _frame(spark: Any, plan: Plan) -> Any:
    """The facts as a DataFrame. One task reads one piece, or several if there are many."""
    import pickle

    rows = [(pickle.dumps(piece),) for piece in plan.pieces]
    frame = spark.createDataFrame(rows, "piece binary")
    spread = frame.repartition(max(1, min(len(rows), 4 * _tasks(spark))))
    return spread.mapInArrow(_read_pieces, SCHEMA)


def _read_pieces(batches: Iterable[Any]) -> Iterator[Any]:
    """The facts of a task's pieces. Runs in a task."""
    import pickle

    import pyarrow as pa

    schema = arrow_schema()

    def packed(rows: list[Fact]) -> Any:
        columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    rows: list[Fact] = []
    for batch in batches:
        for piece in batch.column("piece"):
            for fact in facts_of(pickle.loads(piece.as_py())):
                rows.append(fact)
                if len(rows) == _ROWS:
                    yield packed(rows)
                    rows = []
    if rows:
        yield packed(rows)


def _with_spark(plan: Plan, spark: Any, advance: Advance) -> list[PartitionReport]:
    from fencepost.spark_pipelines.progress import watching

    if not plan.pieces:
        return _in_process(plan, advance)
    bounds = dict(plan.bounds)

    def folded(table: Any) -> Any:
        return _fold(table, bounds)

    # One task per partition log, instead of Spark's default of 200, most of which would be empty.
    facts = _frame(spark, plan).repartition(min(len(bounds), 4 * _tasks(spark)), "topic", "partition")
    grouped = facts.groupBy("topic", "partition").applyInArrow(folded, "report string")
    with watching(spark, advance):
        rows = grouped.collect()
    reports = [PartitionReport.from_json(row.report) for row in rows]
    seen = {TopicPartition(one.topic, one.partition) for one in reports}
    empty = [PartitionAudit(*tp, known).finish() for tp, known in plan.bounds.items() if tp not in seen]
    return [*reports, *empty]


def _fold(table: Any, bounds: Mapping[TopicPartition, Bounds]) -> Any:
    """The report of one partition, from all its facts in the order of the log. Runs in a task."""
    import pyarrow as pa

    table = table.sort_by([("piece", "ascending"), ("position", "ascending")])
    tp = TopicPartition(table.column("topic")[0].as_py(), table.column("partition")[0].as_py())
    audited = PartitionAudit(*tp, bounds[tp])
    for batch in table.to_batches(max_chunksize=_ROWS):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            audited.take(Fact(*row))
    return pa.table({"report": [audited.finish().to_json()]})
