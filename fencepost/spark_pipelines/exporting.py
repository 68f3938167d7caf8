"""Exports committed records to Parquet exactly once, also after kills and restarts."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.offsets import EARLIEST, LATEST, Offsets, tree_of
from fencepost.spark_connector.source.options import parse_options
from fencepost.spark_connector.source.planner import fetch_settings
from fencepost.spark_pipelines.errors import PipelineError
from fencepost.spark_pipelines.export_store import ExportStore, Manifest, next_ends
from fencepost.spark_pipelines.progress import Advance, watching
from fencepost.spark_pipelines.shape import Shape
from fencepost.spark_pipelines.tables.table import Table
from fencepost.spark_pipelines.tables.table_store import TableStore
from fencepost.spark_pipelines.whole_batches import Bounds, Name, WholeBatches, headers_of

log = logging.getLogger(__name__)

DEFAULT_BATCH_RECORDS = 1_000_000
_POLL_SECONDS = 0.2
_START_AGAIN = "Export into another directory or table"


def export(
    spark: Any,
    topics: Sequence[str],
    target: Path | str | Table,
    *,
    kafka: Mapping[str, Any],
    shape: Shape | None = None,
    batch_records: int = DEFAULT_BATCH_RECORDS,
    headers: bool = False,
    follow_seconds: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    fail_on_data_loss: bool = True,
    whole_transactions: bool = False,
    advance: Advance | None = None,
) -> Iterator[Manifest]:
    """Write the committed records that are not yet in `target`; yields the manifest of each new batch.

    `target` is a directory for Parquet files, or a table: `delta_table(...)` or `iceberg_table(...)`.
    A batch covers about `batch_records` offsets, and may end within a transaction. With `whole_transactions` it holds
    all records of a committed transaction or none, so it may be larger; records of a transaction that cannot be read
    whole yet wait, and so do those behind them. The driver reads ahead for that.

    With `follow_seconds` the export continues and looks for new records in this interval, until `stop` returns true.
    After a restart it continues after the last published batch. It needs the same topics and shape then. `kafka` holds
    Kafka's dotted names, at least "bootstrap.servers". A thread calls `advance` with the number of finished tasks and
    of all tasks of the current batch.

    Raises PipelineError if the target belongs to another export, or if the cluster or a topic is another one than at
    the start. The export checks this before and after each batch, and publishes no batch with records of two topics
    with one name. Spark raises an error if records were deleted before their export, unless `fail_on_data_loss` is
    false. Raises BrokerError.
    """
    if batch_records < 1:
        raise ValueError("batch_records must be at least 1")
    store: ExportStore | TableStore
    store = ExportStore.open(target) if isinstance(target, str | Path) else TableStore(target)
    try:
        whole = WholeBatches() if whole_transactions else None
        work = _Export(spark, store, topics, dict(kafka), shape or Shape(), headers, fail_on_data_loss, whole)
        while not stop():
            with watching(spark, advance) if advance is not None else nullcontext():
                manifest = work.batch(batch_records)
            if manifest is not None:
                yield manifest
            if manifest is None or not work.more:
                if follow_seconds is None:
                    return
                _wait(follow_seconds, stop)
    finally:
        store.close()


def read_export(spark: Any, target: Path | str) -> Any:
    """The exported records as a DataFrame. The column `batch` is the number of the batch. Batches appear whole."""
    return spark.read.parquet(Path(target).resolve().as_uri())


def read_records(
    spark: Any,
    options: Mapping[str, str],
    begin: Offsets,
    end: Offsets,
    *,
    headers: bool = False,
    fail_on_data_loss: bool = True,
) -> Any:
    """The committed records from `begin` to before `end` as a DataFrame; `options` are those of the connection."""
    busy = [tp for tp in sorted(end) if begin[tp] < end[tp]] or sorted(end)[:1]
    tree: dict[str, list[int]] = {}
    for tp in busy:
        tree.setdefault(tp.topic, []).append(tp.partition)
    ranges = {
        "assign": json.dumps(tree),
        "startingOffsets": json.dumps(tree_of({tp: begin[tp] for tp in busy})),
        "endingOffsets": json.dumps(tree_of({tp: end[tp] for tp in busy})),
        "includeHeaders": str(headers).lower(),
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    return spark.read.format("fencepost").options(**options).options(**ranges).load()


class _Export:
    def __init__(
        self,
        spark: Any,
        store: ExportStore | TableStore,
        topics: Sequence[str],
        kafka: dict[str, Any],
        shape: Shape,
        headers: bool,
        fail_on_data_loss: bool,
        whole: WholeBatches | None,
    ) -> None:
        self._spark = spark
        self._store = store
        self._topics = list(dict.fromkeys(topics))
        self._options = {f"kafka.{name}": str(value) for name, value in kafka.items()}
        source = parse_options({"subscribe": ",".join(topics), **self._options})
        self._connection, self._fetching = source.connection, fetch_settings(source)
        self._whole = whole
        self._warned_of: Name | None = None
        self._kafka = kafka
        self._shape = shape
        self._headers = headers
        self._fail_on_data_loss = fail_on_data_loss
        self._what = description_of(self._topics, shape, headers)
        self.more = False
        """Whether offsets are left for the next batch."""
        self._identity = identity_of(kafka, self._topics)
        self._last = self._last_batch()

    def batch(self, most: int) -> Manifest | None:
        """Read, stage and publish the next batch; None if no visible record is left now."""
        begin, upto = self._bounds(most)
        if all(upto[tp] == begin[tp] for tp in upto):
            return None
        records = read_records(
            self._spark, self._options, begin, upto, headers=self._headers, fail_on_data_loss=self._fail_on_data_loss
        )
        staged: Any = self._store.stage(self._shape.applied(records))
        rows = self._store.rows(staged)
        if rows == 0 and not self.more and not self._shape.filters:
            # Only aborted records and markers. The next batch skips them again, together with the offsets that follow.
            self._store.discard(staged)
            return None
        self._check_topics(staged)
        cluster_id, topic_ids = self._identity
        number = 0 if self._last is None else self._last.batch + 1
        files = self._store.sizes(staged)
        manifest = Manifest(number, tree_of(begin), tree_of(upto), rows, files, self._what, cluster_id, topic_ids)
        self._store.publish(staged, manifest)
        self._last = manifest
        return manifest

    def _last_batch(self) -> Manifest | None:
        """The last published batch. Raises PipelineError if it is one of other records."""
        if isinstance(self._store, TableStore):
            return self._store.last(self._partitions(), self._what, *self._identity)
        last = self._store.last()
        if last is not None:
            check_unchanged(self._store.target, last, self._what, *self._identity)
        return last

    def _partitions(self) -> list[TopicPartition]:
        cluster = Cluster(self._connection)
        try:
            found = self._same_topics(cluster)
            return [TopicPartition(name, number) for name in self._topics for number in found[name]]
        finally:
            cluster.close()

    def _bounds(self, most: int) -> tuple[Offsets, Offsets]:
        """The start and the end of the next batch."""
        cluster = Cluster(self._connection)
        try:
            found = self._same_topics(cluster)
            partitions = [TopicPartition(name, number) for name in self._topics for number in found[name]]
            end = cluster.list_offsets(dict.fromkeys(partitions, LATEST), IsolationLevel.READ_COMMITTED)
            known = {} if self._last is None else self._last.ends()
            new = [tp for tp in partitions if tp not in known]
            first = cluster.list_offsets(dict.fromkeys(new, EARLIEST), IsolationLevel.READ_COMMITTED)
            begin = {tp: first[tp] if tp in first else known[tp] for tp in partitions}
            self._check_not_beyond(begin, end)
            upto = next_ends(begin, end, most)
            self.more = upto != end
            if self._whole is not None and begin != end:
                upto = self._whole_ends(self._whole, cluster, begin, end, most)
                self.more &= upto != end
        finally:
            cluster.close()
        return begin, upto

    def _whole_ends(self, whole: WholeBatches, cluster: Cluster, begin: Offsets, end: Offsets, most: int) -> Offsets:
        # The high watermarks are asked for last: what is below the last stable offsets is decided below them.
        first = cluster.list_offsets(dict.fromkeys(begin, EARLIEST), IsolationLevel.READ_UNCOMMITTED)
        high = cluster.list_offsets(dict.fromkeys(begin, LATEST), IsolationLevel.READ_UNCOMMITTED)
        upto = whole.ends(Bounds(begin, first, end, high), most, headers_of(cluster, self._fetching))
        held = whole.held_back
        if upto == begin and held is not None and held != self._warned_of:
            self._warned_of = held
            log.warning(
                "%s: records wait, because a committed transaction of producer %d cannot be read whole yet",
                self._store.target,
                held.producer_id,
            )
        return upto

    @staticmethod
    def _check_not_beyond(begin: Offsets, end: Offsets) -> None:
        """Raise PipelineError if a partition is shorter than what was exported of it."""
        beyond = [tp for tp in begin if begin[tp] > end[tp]]
        if beyond:
            raise PipelineError(
                f"{beyond[0]} was exported up to offset {begin[beyond[0]]}, but ends at {end[beyond[0]]}:"
                f" the topic was created again, or the broker lost records. {_START_AGAIN}"
            )

    def _same_topics(self, cluster: Cluster) -> dict[str, tuple[int, ...]]:
        """The topics' partitions. Raises PipelineError if a topic is missing or was created again since the start."""
        found = cluster.topics(self._topics)
        absent = [name for name in self._topics if name not in found]
        if absent:
            raise PipelineError(f"topic {', '.join(absent)} does not exist on this cluster")
        for name, topic_id in self._identity[1].items():
            now = cluster.topic_ids.get(name, b"").hex()
            if topic_id and now and now != topic_id:
                raise _recreated(name, "under this export")
        return found

    def _check_topics(self, staged: Any) -> None:
        """Delete the staged batch and raise PipelineError if a topic was created again while the batch was read."""
        try:
            self._partitions()
        except PipelineError:
            self._store.discard(staged)
            raise


def description_of(topics: Sequence[str], shape: Shape, headers: bool) -> dict[str, Any]:
    """What an export takes of which topics. It continues only with the same."""
    function = None if shape.function is None else getattr(shape.function, "__qualname__", "function")
    return {
        "topics": list(dict.fromkeys(topics)),
        "where": shape.where,
        "select": shape.select,
        "sql": shape.sql,
        "function": function,
        "headers": headers,
    }


def check_unchanged(
    target: Any, last: Manifest, what: Mapping[str, Any], cluster_id: str, topic_ids: Mapping[str, str]
) -> None:
    """Raise PipelineError if topics, shape, cluster or topic ids differ from the last batch's."""
    differs = [name for name, value in what.items() if last.what.get(name) != value]
    if differs:
        name = differs[0]
        raise PipelineError(
            f"{target} was started with {name} = {last.what.get(name)!r}, but this export has {what[name]!r}: use the"
            f" first value again. {_START_AGAIN} otherwise"
        )
    if last.cluster_id != cluster_id:
        raise PipelineError(
            f"{target} was started with cluster {last.cluster_id}, but this is cluster {cluster_id}. {_START_AGAIN}"
        )
    for name, topic_id in topic_ids.items():
        if last.topic_ids.get(name) not in (None, "", topic_id):
            raise _recreated(name, "since the last export")


def _recreated(topic: str, when: str) -> PipelineError:
    return PipelineError(f"topic {topic} was deleted and created again {when}. {_START_AGAIN}")


def identity_of(kafka: Mapping[str, Any], topics: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The cluster's id, and the topics' ids by name; "" if the broker is too old to have them."""
    import trio

    from fencepost.client import Client, ItemsFailedError
    from fencepost.protocol.errors import ErrorCode

    async def describe() -> list[tuple[str, dict[str, str]]]:
        found = []
        async with Client.from_config(dict(kafka)) as client, client.admin() as admin:
            cluster_id = (await admin.describe_cluster()).cluster_id
            try:
                described = await admin.describe_topics(topics)
            except ItemsFailedError as failed:
                topic, error = next(iter(failed.errors.items()))
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise PipelineError(f"topic {topic} cannot be exported: {error}") from None
                raise PipelineError(f"topic {topic} does not exist: check its name, or create it first") from None
            ids = {name: one.topic_id.hex() if any(one.topic_id) else "" for name, one in described.items()}
            found.append((cluster_id or "", ids))
        return found

    return trio.run(describe)[0]


def _wait(seconds: float, stop: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_SECONDS))
