"""Compacts topics of a cluster by Spark's tasks: they write new objects, and the owner of each log commits the rows."""

from __future__ import annotations

import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.config.topic_rules import TopicRules
from fencepost.broker.log.compaction.cleaning import CleaningInterrupted, CleaningLimits
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.topics import METADATA_TOPIC, TopicPartition
from fencepost.spark_connector.source.store_cluster import StoreCluster
from fencepost.spark_connector.source.store_settings import StoreSettings
from fencepost.spark_pipelines.errors import PipelineError

if TYPE_CHECKING:
    from fencepost.broker.cluster.reading.folding import Index
    from fencepost.broker.log.config import LogConfig
    from fencepost.broker.log.storage.store import Store

MEMORY_BYTES = 32 << 20
"""Larger logs are copied to files of the task's machine."""
_POLL_SECONDS = 0.5
Advance = Callable[[int, int], None]


class Outcome(StrEnum):
    """What became of the compaction of one partition."""

    COMMITTED = "committed"
    REFUSED = "refused"
    """The owner did not commit it; nothing changed, or a first part is compacted."""
    WAITING = "waiting"
    """No broker has answered yet. The proposal stays, and the next active broker answers."""
    CLEAN = "nothing to compact"
    CHANGED = "the rows changed while they were read"
    """Brokers merged or compacted them; run the compaction again."""
    DAMAGED = "damaged"


class CompactedPartition(NamedTuple):
    """The result for one partition; `why` explains the outcome."""

    topic: str
    partition: int
    outcome: Outcome
    why: str = ""
    records_read: int = 0
    records_kept: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


class CompactionTask(NamedTuple):
    """What one task compacts: a log as the cut has it."""

    tp: TopicPartition
    log_index: Index
    config: LogConfig
    limits: CleaningLimits
    inline_bytes: int
    newest: bool
    now_ms: int
    settings: StoreSettings


class _Computed(NamedTuple):
    result: CompactedPartition
    log: int
    value: bytes
    """The proposal; empty if there is none."""


def compact(
    topics: Collection[str],
    stores: StoreSettings,
    *,
    config: BrokerConfig | None = None,
    spark: Any = None,
    newest: bool = False,
    map_bytes: int | None = None,
    wait_seconds: float = 120.0,
    advance: Advance = lambda done, total: None,
) -> list[CompactedPartition]:
    """Compact topics with cleanup.policy=compact, each partition by one task, and wait for the owners' answers.

    `config` are the brokers' settings, for what the topics do not set themselves. With `newest` rows that brokers may
    still merge are compacted, too. `map_bytes` is the memory of a task for keys; None: the brokers'
    log.cleaner.dedupe.buffer.size. Without `spark` this process does the work.

    Raises PipelineError for a topic that does not exist or is not compacted; StoreUnavailable; SchemaMismatch;
    CorruptLogFile if the metadata or a log's snapshot are damaged; ValueError for a wrong address.
    """
    cluster = StoreCluster(stores)
    try:
        known = config or BrokerConfig()
        tasks = cluster.with_retries(lambda: _tasks(cluster, topics, known, newest, map_bytes))
        done: list[_Computed] = []
        advance(0, len(tasks))
        for one in _in_process(tasks) if spark is None else _with_spark(tasks, spark):
            done.append(one)
            advance(len(done), len(tasks))
        return _answers(cluster, done, wait_seconds)
    finally:
        cluster.close()


def _tasks(
    cluster: StoreCluster, topics: Collection[str], config: BrokerConfig, newest: bool, map_bytes: int | None
) -> list[CompactionTask]:
    from fencepost.broker.cluster.verify.cut import MetadataView, cut_of

    engine, row_objects = cluster.stores()
    rules = TopicRules(config)
    with cut_of(engine, row_objects, MetadataView()) as cut:
        settings: dict[str, LogConfig] = {}
        for topic in sorted(set(topics)):
            if topic not in cut.topics or topic == METADATA_TOPIC:
                there = ", ".join(sorted(name for name in cut.topics if name != METADATA_TOPIC)) or "none at all"
                raise PipelineError(f"there is no topic {topic} in {engine.place}; there are: {there}")
            settings[topic] = rules.log_config(cut.image, topic)
            if not settings[topic].compacted:
                raise PipelineError(
                    f"topic {topic} is not compacted: set its cleanup.policy to compact, or give the brokers' file of"
                    " settings with --config if they set log.cleanup.policy there"
                )
        partitions = [
            TopicPartition(topic, number) for topic in settings for number in range(cut.topics[topic].partitions)
        ]
        logs = {log: tp for tp in partitions if (log := cut.log_of(tp)) is not None}
        indexes = cut.index(list(logs))
    now = rules.broker_config(cut.image)
    limits = CleaningLimits(map_bytes or now.log_cleaner_dedupe_buffer_size, now.log_cleaner_io_buffer_load_factor)
    now_ms = int(time.time() * 1000)
    found = []
    for log, index in indexes.items():
        own = settings[logs[log].topic]
        own = replace(own, segment_bytes=min(own.segment_bytes, now.cluster_segment_max_bytes))
        inline = now.cluster_inline_max_bytes
        found.append(CompactionTask(logs[log], index, own, limits, inline, newest, now_ms, cluster.settings))
    return sorted(found, key=lambda task: task.tp)


def _run(task: CompactionTask) -> _Computed:
    """Compute one log's compaction, and put its objects. Raises StoreUnavailable and OSError."""
    from fencepost.broker.cluster.growth.proposals import clean_job, computed, encode
    from fencepost.broker.cluster.growth.row_cleaning import RowPlanner
    from fencepost.broker.cluster.objects.object_store import ObjectMissing

    log = task.log_index.head.log

    def nothing(outcome: Outcome, why: str = "") -> _Computed:
        return _Computed(CompactedPartition(*task.tp, outcome, why), log, b"")

    cluster = StoreCluster(task.settings)
    directory = Path(tempfile.mkdtemp(prefix="fencepost-compaction-"))
    try:
        engine, row_objects = cluster.stores()
        job = clean_job(task.log_index, task.tp, task.config, task.limits, task.now_ms, task.newest)
        if job is None:
            return nothing(Outcome.CLEAN)
        scratch = partial(_scratch, directory)
        planner = RowPlanner(engine, row_objects, task.inline_bytes, scratch, rest_per_work=0.0)
        found = cluster.with_retries(lambda: computed(planner, job))
    except (ObjectMissing, CleaningInterrupted):
        return nothing(Outcome.CHANGED, "run the compaction again")
    except CorruptLogFile as error:
        return nothing(Outcome.DAMAGED, f"{error}; `fencepost spark audit --store` lists all damage")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        cluster.close()
    if found is None:
        return nothing(Outcome.CHANGED, "run the compaction again")
    stats = found.stats
    counts = stats.records_read, stats.records_kept, stats.read_bytes, stats.written_bytes
    result = CompactedPartition(*task.tp, Outcome.WAITING, "", *counts)
    return _Computed(result, log, encode(found.proposal))


def _scratch(directory: Path, size_bytes: int) -> Store:
    from fencepost.broker.log.storage.files import FileStore
    from fencepost.broker.log.storage.memory import MemoryStore

    if size_bytes <= MEMORY_BYTES:
        return MemoryStore()
    return FileStore(Path(tempfile.mkdtemp(dir=directory)))


def _in_process(tasks: Collection[CompactionTask]) -> Iterator[_Computed]:
    yield from map(_run, tasks)


def _with_spark(tasks: Collection[CompactionTask], spark: Any) -> Iterator[_Computed]:
    """One task of Spark for each partition. Results arrive one after the other."""
    if not tasks:
        return
    rows = [(pickle.dumps(task),) for task in tasks]
    frame = spark.createDataFrame(rows, "task binary").repartitionByRange(len(rows), "task")
    for row in frame.mapInArrow(_run_rows, "result binary").toLocalIterator(prefetchPartitions=True):
        yield pickle.loads(bytes(row.result))


def _run_rows(batches: Iterable[Any]) -> Iterator[Any]:
    """Runs in a task of Spark."""
    import pyarrow as pa

    for batch in batches:
        for task in batch.column("task"):
            result = pickle.dumps(_run(pickle.loads(task.as_py())))
            yield pa.RecordBatch.from_pydict({"result": pa.array([result], pa.binary())})


def _answers(cluster: StoreCluster, done: Collection[_Computed], wait_seconds: float) -> list[CompactedPartition]:
    """Propose what was computed, and wait for the owners."""
    from fencepost.broker.cluster.growth.accepting import COMMITTED

    engine, _ = cluster.stores()
    results = {one.result[:2]: one.result for one in done}
    open_: dict[int, CompactedPartition] = {}
    for one in done:
        if one.value:
            open_[cluster.with_retries(partial(engine.propose, one.log, one.value))] = one.result
    deadline = time.monotonic() + wait_seconds
    while open_:
        for number, result in list(open_.items()):
            answer = cluster.with_retries(partial(engine.answer_to, number))
            if answer is None:
                continue
            del open_[number]
            outcome = Outcome.COMMITTED if answer == COMMITTED else Outcome.REFUSED
            why = "" if answer == COMMITTED else answer
            results[result[:2]] = result._replace(outcome=outcome, why=why)
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS if open_ else 0.0)
    for number, result in open_.items():
        why = f"no broker has answered proposal {number} yet: the active broker does when it compacts"
        results[result[:2]] = result._replace(why=why)
    return [results[key] for key in sorted(results)]
