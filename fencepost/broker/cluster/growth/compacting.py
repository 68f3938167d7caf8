"""The compactions of an active broker of a cluster: which log is next, and what its rows are afterwards."""

import logging
import shutil
import tempfile
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from fencepost.broker.cluster.commit.rounds import RowBytes
from fencepost.broker.cluster.commit.shared_log import SharedLog
from fencepost.broker.cluster.commit.writer import Writer
from fencepost.broker.cluster.engine import Changed, ClaimLost, Engine, Fenced, StoreUnavailable
from fencepost.broker.cluster.growth.accepting import Acceptor
from fencepost.broker.cluster.growth.row_cleaning import (
    Cleaned,
    CleanJob,
    Ended,
    RowCleaner,
    RowPlanner,
    cleanable_rows,
    ending_behind,
)
from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.log.compaction.cleanable import CleanableRange
from fencepost.broker.log.compaction.cleaning import CleaningLimits, CleaningStats
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import Store
from fencepost.broker.log.upkeep_failures import COMPACTION, UpkeepFailures, describe, traced
from fencepost.protocol.topics import METADATA_TOPIC

MEMORY_BYTES = 32 << 20
"""Smaller logs are compacted in memory, larger ones in files."""
RETRY_SECONDS = 0.5

logger = logging.getLogger(__name__)


class Compactions:
    """Compacts the logs with cleanup.policy=compact, one after the other, the dirtiest first."""

    def __init__(
        self,
        config: BrokerConfig,
        engine: Engine,
        writer: Writer,
        row_bytes: RowBytes,
        logs: Callable[[], Collection[PartitionLog]],
        scratch: Path | None,
        now_ms: Callable[[], int],
        upkeep: UpkeepFailures,
    ) -> None:
        """`scratch` is a directory for copies of large logs; None: the system's."""
        self._now_ms = now_ms
        self._upkeep = upkeep
        self.backoff_ms = config.log_cleaner_backoff_ms
        self.busy: SharedLog | None = None
        """The log that is compacted now; nothing else may change its rows."""
        self.last = CleaningStats()
        self._config = config
        self._writer = writer
        self._row_bytes = row_bytes
        self._logs = logs
        self._scratch = scratch
        self._copies: Path | None = None
        self._ended = False
        planner = RowPlanner(
            engine, row_bytes, config.cluster_inline_max_bytes, self._store_for, lambda: self._ended or writer.fenced
        )
        self._cleaner = RowCleaner(engine, lambda: writer.identity, planner)
        self._acceptor = Acceptor(engine, writer, self._cleaner, logs, self._reserve)

    def end(self) -> None:
        """Let the compaction that is under way end early: its thread cannot be cancelled."""
        self._ended = True

    async def compact(self) -> None:
        """Answer the proposed compactions, and compact every log that is due."""
        with self._upkeep.guard("the answer to proposed compactions"):
            await self._acceptor.answer()
        put_off: set[PartitionLog] = set()
        while self._config.log_cleaner_enable and not self._writer.fenced:
            found = await self._dirtiest(put_off)
            if found is None:
                return
            log, shared, range_ = found
            put_off.add(log)
            self.busy = shared
            try:
                await self._compact(log, shared, self._job(log, shared, range_))
            finally:
                self.busy = None

    def _reserve(self, log: SharedLog | None) -> None:
        self.busy = log

    async def _dirtiest(
        self, skipped: Collection[PartitionLog]
    ) -> tuple[PartitionLog, SharedLog, CleanableRange] | None:
        best, found = -1.0, None
        for log in list(self._logs()):
            await trio.lowlevel.checkpoint()
            shared, config = log.segments, log.config
            if not config.compacted or not isinstance(shared, SharedLog) or not shared.is_open or log in skipped:
                continue
            if log.tp.topic == METADATA_TOPIC or COMPACTION in log.failed_upkeep:
                continue
            with self._upkeep.guard(COMPACTION, failed=partial(self._failed, log)):
                range_ = self._range(log, shared)
                if range_.is_due(config) and range_.dirty_ratio > best:
                    best, found = range_.dirty_ratio, (log, shared, range_)
        return found

    def _range(self, log: PartitionLog, shared: SharedLog) -> CleanableRange:
        return cleanable_rows(
            shared.index.rows,
            shared.index.folded_to,
            log.config,
            shared.cleaned_to,
            log.log_start_offset,
            log.last_stable_offset,
            self._now_ms(),
        )

    def _job(self, log: PartitionLog, shared: SharedLog, range_: CleanableRange) -> CleanJob:
        rows = [row for row in shared.index.rows if row.end <= range_.upper_offset]
        size = min(log.config.segment_bytes, self._config.cluster_segment_max_bytes)
        return CleanJob(
            shared.log_id,
            log.tp,
            rows,
            range_,
            replace(log.config, segment_bytes=size),
            log.producers.copy(),
            CleaningLimits(self._config.log_cleaner_dedupe_buffer_size, self._config.log_cleaner_io_buffer_load_factor),
            self._config.log_cleaner_io_max_bytes_per_second,
            self._now_ms(),
            ending_behind(rows, shared.index.aborted_between(log.log_start_offset, range_.upper_offset)),
        )

    def _failed(self, log: PartitionLog, error: Exception) -> None:
        """Whatever the error is, it is about this log: the others are compacted, as in Kafka (LogCleaner.cleanLog)."""
        self._upkeep.mark(COMPACTION, error, log)
        logger.error(
            "%s is uncleanable and is not compacted until a restart: %s",
            log.tp,
            describe(error),
            exc_info=traced(error),
        )

    async def _compact(self, log: PartitionLog, shared: SharedLog, job: CleanJob) -> None:
        try:
            done = await trio.to_thread.run_sync(self._run, job)
        except Ended:
            logger.info("the compaction of %s ends early: this broker is not active any more", job.tp)
            return
        except (StoreUnavailable, Fenced, Changed, ClaimLost) as error:
            if isinstance(error, ClaimLost):
                self._row_bytes.forget_claims()
            logger.warning("%s could not be compacted, the broker tries again later: %s", job.tp, error)
        except Exception as error:
            if self._upkeep.ends_process(error) and not isinstance(error, OSError):
                raise
            self._failed(log, error)
        else:
            self._apply(shared, done)
            self.last = done.stats
            logger.info(
                "compacted partition=%s to_offset=%d read_bytes=%d written_bytes=%d records=%d kept=%d",
                job.tp,
                done.cleaned_to,
                done.stats.read_bytes,
                done.stats.written_bytes,
                done.stats.records_read,
                done.stats.records_kept,
            )
            return
        while not self._writer.fenced:
            try:
                span = job.rows[0].base, job.rows[-1].end
                part = await trio.to_thread.run_sync(self._cleaner.read, job.log_id, *span)
            except StoreUnavailable as error:
                logger.debug("the rows of %s cannot be read: %s", job.tp, error)
                await trio.sleep(RETRY_SECONDS)
            else:
                self._apply(shared, Cleaned([part], -1, CleaningStats()))
                return

    def _run(self, job: CleanJob) -> Cleaned:
        try:
            return self._cleaner.run(job)
        finally:
            if self._copies is not None:
                shutil.rmtree(self._copies, ignore_errors=True)
                self._copies = None

    def _apply(self, shared: SharedLog, done: Cleaned) -> None:
        if not shared.is_open:
            return
        for part in done.parts:
            shared.compacted(part.start, part.end, part.rows, part.aborted)
        shared.cleaned_to = max(shared.cleaned_to, done.cleaned_to)

    def _store_for(self, size_bytes: int) -> Store:
        """An empty store for copies, which `_run` deletes."""
        if size_bytes <= MEMORY_BYTES:
            return MemoryStore()
        self._copies = Path(tempfile.mkdtemp(prefix="compaction-", dir=self._scratch))
        return FileStore(self._copies)
