"""Keeps the stores of a cluster small: the active broker merges and compacts rows, and deletes unused objects."""

import heapq
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import trio

from fencepost.broker.cluster.commit.rounds import RowBytes
from fencepost.broker.cluster.commit.shared_log import SharedLog
from fencepost.broker.cluster.commit.writer import Stopped, Writer
from fencepost.broker.cluster.engine import Engine, Fenced, StoreUnavailable
from fencepost.broker.cluster.growth.compacting import Compactions
from fencepost.broker.cluster.growth.merger import MergeJob, Merger, NewRows
from fencepost.broker.cluster.growth.merging import Merge, MergeLimits, due_merge, merge_of_runs
from fencepost.broker.cluster.growth.row_cleaning import delay_ms
from fencepost.broker.cluster.objects.gc import Collector, sweep
from fencepost.broker.cluster.reading.row_index import RowIndex
from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability.upkeep import sync_all
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.store import SyncTask
from fencepost.broker.log.upkeep_failures import UpkeepFailures
from fencepost.protocol.topics import METADATA_TOPIC

EVICTION_MS = 1000
DROP_MS = 5000
JOBS_MAX = 500
"""The most logs that share one object."""
RETRY_SECONDS = 0.5
MERGE = "merge"
FIRST_SWEEP = 10
"""The first sweep is due after this fraction of the interval: a broker may never be active for a whole one."""

logger = logging.getLogger(__name__)


def wall_ms() -> int:
    return int(time.time() * 1000)


class GrowthCounters:
    """Totals since the start."""

    def __init__(self) -> None:
        self.merges = 0
        """Changes of one log."""
        self.merged_rows = 0
        """Rows that were replaced."""
        self.merged_bytes = 0
        """Bytes that were read and written again."""
        self.swept_objects = 0
        """Objects that were deleted because the database did not know them."""


class _Due(NamedTuple):
    """A log, and what is to be merged in it."""

    log: PartitionLog
    shared: SharedLog
    job: MergeJob


class Growth:
    """The loops of an active broker that merge and collect. `run` ends when the broker was taken over."""

    def __init__(
        self,
        config: BrokerConfig,
        engine: Engine,
        writer: Writer,
        row_bytes: RowBytes,
        logs: Callable[[], Collection[PartitionLog]],
        scratch: Path | None = None,
        now_ms: Callable[[], int] = wall_ms,
        background_tasks: Callable[[], Iterable[SyncTask]] = tuple,
        sweeps: Callable[[], bool] = lambda: True,
        followed: Callable[[], Collection[PartitionLog]] = tuple,
        upkeep: UpkeepFailures | None = None,
    ) -> None:
        """`engine` is a connection that only this uses; `logs` returns the open logs; `scratch` is a directory.

        `background_tasks` returns each task once: they delete the rows of deleted topics. `sweeps`: whether this broker
        lists all objects, which one of a cluster does. `followed` returns logs of other brokers: of them this only
        deletes local copies.
        """
        upkeep = self._upkeep = UpkeepFailures() if upkeep is None else upkeep
        upkeep.ending += (Fenced, Stopped)
        self.counters = GrowthCounters()
        self.collector = Collector(row_bytes, config.cluster_claim_max_age_ms)
        self.compactions = Compactions(config, engine, writer, row_bytes, logs, scratch, now_ms, upkeep)
        self._now_ms = now_ms
        self._background_tasks = background_tasks
        self._config = config
        self._engine = engine
        self._writer = writer
        self._row_bytes = row_bytes
        self._merger = Merger(engine, lambda: writer.identity, row_bytes, config.cluster_inline_max_bytes)
        self._logs = logs
        self._sweeps = sweeps
        self._followed = followed
        self.merging = trio.Lock()
        """Held while rows are merged: the task that gives logs up waits for it."""
        self._settled: dict[SharedLog, tuple[int, int]] = {}
        """Logs that had nothing to merge, with the number of their rows then, and the offset of their end."""

    async def run(self) -> None:
        """Merge and collect until cancelled, or until this broker was taken over."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._repeat, self._config.cluster_merge_interval_ms, self.merge)
            nursery.start_soon(self._repeat, self._config.cluster_gc_interval_ms, self.collect)
            sweep_ms = self._config.cluster_sweep_interval_ms
            nursery.start_soon(self._repeat, sweep_ms, self.sweep, sweep_ms // FIRST_SWEEP)
            nursery.start_soon(self._repeat, EVICTION_MS, self.evict)
            nursery.start_soon(self._repeat, DROP_MS, self.drop)
            nursery.start_soon(self._repeat, self.compactions.backoff_ms, self.compactions.compact)

    async def _repeat(self, interval_ms: int, step: Callable[[], Awaitable[None]], first_ms: int | None = None) -> None:
        try:
            await trio.sleep((interval_ms if first_ms is None else first_ms) / 1000)
            while not self._writer.fenced:
                with self._upkeep.guard(step.__name__):
                    await step()
                await trio.sleep(interval_ms / 1000)
        finally:
            self.compactions.end()  # by whichever loop ends first: that of a compaction waits for its thread

    async def collect(self) -> None:
        try:
            await trio.to_thread.run_sync(self.collector.step, self._engine)
        except StoreUnavailable as error:
            logger.warning("unused objects are not deleted now, the broker tries again later: %s", error)

    async def drop(self) -> None:
        """Delete the rows of deleted topics. Their objects are unused then, and `collect` deletes them."""
        for task in self._background_tasks():
            try:
                await trio.to_thread.run_sync(task.sync)
            except OSError as error:
                logger.warning("the rows of a deleted topic stay until the next start of a broker: %s", error)

    async def sweep(self) -> None:
        """Delete objects that the database does not know. Merging and the broker's end wait for one page at most."""
        if not self._sweeps():
            return
        steps, before = sweep(self._engine, self._row_bytes), self.counters.swept_objects
        try:
            while not self._writer.fenced:
                deleted = await trio.to_thread.run_sync(next, steps, None)
                if deleted is None:
                    break
                self.counters.swept_objects += deleted
        except StoreUnavailable as error:
            logger.warning("not all objects were compared with the database, the broker tries again later: %s", error)
        if self.counters.swept_objects > before:
            logger.info("deleted %d objects that the database did not know", self.counters.swept_objects - before)

    async def evict(self) -> None:
        """Drop local copies of records above the bound, from the logs that have most of them."""
        logs = [log.segments for log in self._logs() if log.tp.topic != METADATA_TOPIC]
        logs += [log.segments for log in self._followed()]
        tails = [(-log.tail_bytes, n, log) for n, log in enumerate(logs) if isinstance(log, SharedLog)]
        excess = -sum(size for size, *_ in tails) - self._config.cluster_tail_max_bytes
        heapq.heapify(tails)
        removals: list[SyncTask] = []
        while excess > 0 and tails and tails[0][0]:
            before, number, log = heapq.heappop(tails)
            if not log.is_open:
                continue
            removals += log.evict()
            excess -= -before - log.tail_bytes
            heapq.heappush(tails, (-log.tail_bytes, number, log))
        if removals:
            await trio.to_thread.run_sync(sync_all, removals)

    async def merge(self) -> None:
        """Merge until no log has anything to merge."""
        self._settled = {log: known for log, known in self._settled.items() if log.is_open}
        failed: set[SharedLog] = set()
        while not self._writer.fenced:
            async with self.merging:
                jobs = await self._due(failed)
                if not jobs:
                    return
                await self._merge(jobs, failed)

    async def _merge(self, due: Sequence[_Due], failed: set[SharedLog]) -> None:
        found = {new.log_id: new for new in await self._carry_out(due)}
        for _, shared, job in due:
            new = found.get(shared.log_id)
            if new is not None and shared.is_open:
                shared.replaced(new.start, new.end, new.rows, new.folded_to)
            if new is None or not new.as_planned:
                failed.add(shared)
                continue
            self.counters.merges += 1
            self.counters.merged_rows += len(job.merge.rows)
            self.counters.merged_bytes += job.merge.read_bytes

    async def _due(self, failed: set[SharedLog]) -> list[_Due]:
        """The next jobs, as many as go into one object."""
        jobs: list[_Due] = []
        size_bytes = 0
        for log in list(self._logs()):
            await trio.lowlevel.checkpoint()
            shared = log.segments
            if not isinstance(shared, SharedLog) or not shared.is_open or shared in failed:
                continue
            if shared is self.compactions.busy:
                continue
            job = None
            failed.add(shared)
            with self._upkeep.guard(MERGE, log):
                job = self._job(log, shared)
                failed.remove(shared)
            if job is None:
                continue
            jobs.append(_Due(log, shared, job))
            size_bytes += job.merge.read_bytes
            if size_bytes >= self._limits(log.config).bytes_max or len(jobs) == JOBS_MAX:
                break
        return jobs

    def _job(self, log: PartitionLog, shared: SharedLog) -> MergeJob | None:
        index, config = shared.index, log.config
        if self._settled.get(shared) == (len(index), shared.end_offset) and not config.compacted:
            return None
        limits = self._limits(config)
        merge = due_merge(index.rows, index.folded_to, limits, shared.cleaned_to)
        if merge is None and config.compacted:
            merge = _merge_for_compaction(index, config, limits, self._now_ms())
        if merge is None:
            self._settled[shared] = len(index), shared.end_offset
            return None
        expiry = self._now_ms(), config.producer_id_expiration_ms, config.producer_ids_max
        return MergeJob(shared.log_id, str(log.tp), merge, *expiry)

    def _limits(self, config: LogConfig) -> MergeLimits:
        segment_bytes = min(config.segment_bytes, self._config.cluster_segment_max_bytes)
        return MergeLimits(segment_bytes, self._config.cluster_merge_min_rows)

    async def _carry_out(self, due: Sequence[_Due]) -> Sequence[NewRows]:
        """The new rows of these logs, whatever became of the jobs; none if this broker was taken over.

        If a job fails for a reason of its own, each log's is carried out alone, and the failed ones have no new rows.
        """
        jobs = [one.job for one in due]
        try:
            return await trio.to_thread.run_sync(self._merger.run, jobs)
        except (StoreUnavailable, Fenced) as error:
            logger.warning("%d logs could not be merged, the broker tries again later: %s", len(jobs), error)
        except Exception as error:
            if self._upkeep.ends_process(error):
                raise
            if len(due) > 1:
                return [new for one in due for new in await self._carry_out([one])]
            self._upkeep.note(MERGE, error, due[0].log)
        rows: list[NewRows] = []
        with self._upkeep.guard(MERGE):
            rows += await self._read(jobs)
        return rows

    async def _read(self, jobs: Sequence[MergeJob]) -> Sequence[NewRows]:
        while not self._writer.fenced:
            await trio.sleep(RETRY_SECONDS)
            try:
                return await trio.to_thread.run_sync(self._merger.read, jobs)
            except StoreUnavailable as error:
                logger.debug("the rows of merged logs cannot be read: %s", error)
        return []


def _merge_for_compaction(index: RowIndex, config: LogConfig, limits: MergeLimits, now_ms: int) -> Merge | None:
    """The log's runs, if max.compaction.lag.ms wants them compacted: that concerns merged rows only (KIP-354)."""
    runs = [row for row in index.rows if row.base >= index.folded_to]
    return merge_of_runs(runs, limits) if delay_ms(runs, config, now_ms) > 0 else None
