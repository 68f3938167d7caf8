"""Exports committed records to Parquet exactly once, also after kills and restarts."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.offsets import EARLIEST, LATEST, Offsets, tree_of
from fencepost.spark_connector.source.options import parse_options
from fencepost.spark_pipelines.errors import PipelineError
from fencepost.spark_pipelines.export_store import ExportStore, Manifest, next_ends
from fencepost.spark_pipelines.progress import Advance, watching
from fencepost.spark_pipelines.shape import Shape

DEFAULT_BATCH_RECORDS = 1_000_000
_POLL_SECONDS = 0.2


def export(
    spark: Any,
    topics: Sequence[str],
    target: Path | str,
    *,
    kafka: Mapping[str, Any],
    shape: Shape | None = None,
    batch_records: int = DEFAULT_BATCH_RECORDS,
    headers: bool = False,
    follow_seconds: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    fail_on_data_loss: bool = True,
    advance: Advance | None = None,
) -> Iterator[Manifest]:
    """Write the committed records that are not yet in `target` as Parquet; yields the manifest of each new batch.

    A batch covers about `batch_records` offsets. With `follow_seconds` the export continues and looks for new records
    in this interval, until `stop` returns true. After a restart it continues after the last published batch. It needs
    the same topics and shape then. `kafka` holds Kafka's dotted names, at least "bootstrap.servers". A thread calls
    `advance` with the number of finished tasks and of all tasks of the current batch.

    Raises PipelineError if the target belongs to another export, or if the cluster or a topic is another one than at
    the start. The export checks this before and after each batch, and publishes no batch with records of two topics
    with one name. Spark raises an error if records were deleted before their export, unless `fail_on_data_loss` is
    false. Raises BrokerError.
    """
    if batch_records < 1:
        raise ValueError("batch_records must be at least 1")
    store = ExportStore.open(target)
    try:
        work = _Export(spark, store, topics, dict(kafka), shape or Shape(), headers, fail_on_data_loss)
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


class _Export:
    def __init__(
        self,
        spark: Any,
        store: ExportStore,
        topics: Sequence[str],
        kafka: dict[str, Any],
        shape: Shape,
        headers: bool,
        fail_on_data_loss: bool,
    ) -> None:
        self._spark = spark
        self._store = store
        self._topics = list(dict.fromkeys(topics))
        self._options = {f"kafka.{name}": str(value) for name, value in kafka.items()}
        self._connection = parse_options({"subscribe": ",".join(topics), **self._options}).connection
        self._kafka = kafka
        self._shape = shape
        self._headers = headers
        self._fail_on_data_loss = fail_on_data_loss
        function = None if shape.function is None else getattr(shape.function, "__qualname__", "function")
        self._what = {
            "topics": self._topics,
            "where": shape.where,
            "select": shape.select,
            "sql": shape.sql,
            "function": function,
            "headers": headers,
        }
        self.more = False
        """Whether offsets are left for the next batch."""
        self._identity = _identity(kafka, self._topics)
        self._last = store.last()
        if self._last is not None:
            self._check_unchanged(self._last)

    def batch(self, most: int) -> Manifest | None:
        """Read, stage and publish the next batch; None if no visible record is left now."""
        begin, end = self._bounds()
        upto = next_ends(begin, end, most)
        self.more = upto != end
        if all(upto[tp] == begin[tp] for tp in upto):
            return None
        staging = self._store.staging()
        frame = self._shape.applied(self._records(begin, upto))
        frame.write.parquet(staging.as_uri())
        files = _files(staging)
        rows = _rows(staging, files)
        if rows == 0 and not self.more:
            # Only aborted records and markers. The next batch skips them again, together with the offsets that follow.
            shutil.rmtree(staging)
            return None
        self._check_topics(staging)
        cluster_id, topic_ids = self._identity
        number = 0 if self._last is None else self._last.batch + 1
        manifest = Manifest(number, tree_of(begin), tree_of(upto), rows, files, self._what, cluster_id, topic_ids)
        self._store.publish(staging, manifest)
        self._last = manifest
        return manifest

    def _bounds(self) -> tuple[Offsets, Offsets]:
        """The start of the next batch, and the last stable offsets."""
        cluster = Cluster(self._connection)
        try:
            found = self._same_topics(cluster)
            partitions = [TopicPartition(name, number) for name in self._topics for number in found[name]]
            end = cluster.list_offsets(dict.fromkeys(partitions, LATEST), IsolationLevel.READ_COMMITTED)
            known = {} if self._last is None else self._last.ends()
            new = [tp for tp in partitions if tp not in known]
            first = cluster.list_offsets(dict.fromkeys(new, EARLIEST), IsolationLevel.READ_COMMITTED)
        finally:
            cluster.close()
        begin = {tp: first[tp] if tp in first else known[tp] for tp in partitions}
        beyond = [tp for tp in partitions if begin[tp] > end[tp]]
        if beyond:
            raise PipelineError(
                f"{beyond[0]} was exported up to offset {begin[beyond[0]]}, but ends at {end[beyond[0]]}:"
                " the topic was created again, or the broker lost records. Export into another directory"
            )
        return begin, end

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

    def _check_topics(self, staging: Path) -> None:
        """Delete the staged batch and raise PipelineError if a topic was created again while the batch was read."""
        cluster = Cluster(self._connection)
        try:
            self._same_topics(cluster)
        except PipelineError:
            shutil.rmtree(staging)
            raise
        finally:
            cluster.close()

    def _records(self, begin: Offsets, end: Offsets) -> Any:
        busy = [tp for tp in sorted(end) if begin[tp] < end[tp]]
        tree: dict[str, list[int]] = {}
        for tp in busy:
            tree.setdefault(tp.topic, []).append(tp.partition)
        reader = self._spark.read.format("fencepost").options(**self._options)
        options = {
            "assign": json.dumps(tree),
            "startingOffsets": json.dumps(tree_of({tp: begin[tp] for tp in busy})),
            "endingOffsets": json.dumps(tree_of({tp: end[tp] for tp in busy})),
            "includeHeaders": str(self._headers).lower(),
            "failOnDataLoss": str(self._fail_on_data_loss).lower(),
        }
        return reader.options(**options).load()

    def _check_unchanged(self, last: Manifest) -> None:
        """Raise PipelineError if topics, shape, cluster or topic ids differ from the last batch's."""
        differs = [name for name, value in self._what.items() if last.what.get(name) != value]
        if differs:
            name = differs[0]
            raise PipelineError(
                f"{self._store.target} was started with {name} = {last.what.get(name)!r}, but this export has"
                f" {self._what[name]!r}: use the first value again, or export into another directory"
            )
        cluster_id, topic_ids = self._identity
        if last.cluster_id != cluster_id:
            raise PipelineError(
                f"{self._store.target} was started with cluster {last.cluster_id}, but this is cluster {cluster_id}:"
                " export into another directory"
            )
        for name, topic_id in topic_ids.items():
            if last.topic_ids.get(name) not in (None, "", topic_id):
                raise _recreated(name, "since the last export")


def _recreated(topic: str, when: str) -> PipelineError:
    return PipelineError(f"topic {topic} was deleted and created again {when}: export into another directory")


def _identity(kafka: Mapping[str, Any], topics: Sequence[str]) -> tuple[str, dict[str, str]]:
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


def _files(staging: Path) -> dict[str, int]:
    """Names and sizes of Spark's files. Raises PipelineError if the executors wrote on other machines."""
    if not (staging / "_SUCCESS").exists():
        raise PipelineError(
            f"Spark's executors do not write to this machine's {staging.parent}: mount it on all of them"
        )
    for extra in [*staging.glob(".*"), staging / "_SUCCESS"]:
        extra.unlink()
    return {path.name: path.stat().st_size for path in sorted(staging.iterdir())}


def _rows(staging: Path, files: Mapping[str, int]) -> int:
    from pyarrow import parquet

    return sum(parquet.read_metadata(staging / name).num_rows for name in files)


def _wait(seconds: float, stop: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_SECONDS))
