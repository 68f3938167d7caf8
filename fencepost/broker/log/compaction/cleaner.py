"""The log cleaner: chooses the dirtiest log, runs its compaction in small steps, and stores the cleaned offset.

A compaction computes in the event loop for a millisecond at a time, then sleeps three times as long. So it takes at
most a quarter of one core. Threads do the work that waits for the disk or for a codec. `log.cleaner.threads` is the
number of compactions at a time, as in Kafka.
"""

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import trio

from fencepost.broker.log.compaction.cleanable import CleanableRange, cleanable_range, must_roll
from fencepost.broker.log.compaction.cleaning import Cleaning, CleaningInterrupted, CleaningLimits, CleaningStats
from fencepost.broker.log.compaction.record_work import Offload
from fencepost.broker.log.compaction.swap import CLEANED
from fencepost.broker.log.deletions import is_full_disk
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.layout import UNCLEANABLE
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import FlushFailed, is_shortage
from fencepost.broker.log.upkeep_failures import COMPACTION, describe, traced
from fencepost.protocol.topics import TopicPartition

REST_PER_WORK = 3.0

logger = logging.getLogger(__name__)


class CleanerSettings(NamedTuple):
    """The settings log.cleaner.*; they may change between two compactions.

    All `threads` together share the rate and the memory.
    """

    enabled: bool = True
    threads: int = 1
    backoff_ms: int = 15_000
    io_max_bytes_per_second: float = math.inf
    limits: CleaningLimits = CleaningLimits()


class LastCleaning(NamedTuple):
    """The result of the last compaction, for the metrics."""

    stats: CleaningStats
    seconds: float
    delay_ms: int


class LogCleaner:
    """Compacts the logs of a directory, `log.cleaner.threads` at a time, while `run` runs."""

    def __init__(
        self,
        directory: LogManager,
        settings: Callable[[], CleanerSettings],
        now_ms: Callable[[], int],
        lose: Callable[[PartitionLog, OSError], None] | None = None,
    ) -> None:
        """If a log's directory cannot be flushed, the cleaner calls `lose`; without it `run` raises the error."""
        self._directory = directory
        self._settings = settings
        self._now_ms = now_ms
        self._lose = lose
        self._put_off: set[PartitionLog] = set()
        self._in_progress: set[PartitionLog] = set()
        self.dirtiest_ratio = 0.0
        """The highest dirty ratio in the last search."""
        self.looked_at_ms = now_ms()
        """The time of the last search."""
        self.last = LastCleaning(CleaningStats(), 0.0, 0)

    async def run(self) -> None:
        """Compact every log that is due, sleep for log.cleaner.backoff.ms, and repeat until cancelled.

        Raises OSError, in a group, if a directory could not be flushed and the process must end.
        """
        while True:
            settings = self._settings()
            if settings.enabled:
                self._put_off.clear()
                async with trio.open_nursery() as nursery:
                    for _ in range(settings.threads):
                        nursery.start_soon(self._clean_all)
            await trio.sleep(settings.backoff_ms / 1000)

    async def _clean_all(self) -> None:
        while await self.clean_dirtiest():
            pass  # `clean_dirtiest` does the work

    def is_cleaning(self, log: PartitionLog) -> bool:
        return log in self._in_progress

    def uncleanable(self) -> dict[TopicPartition, str]:
        """The partitions whose compaction failed, and why; they are skipped until the next start."""
        return {log.tp: log.failed_upkeep[COMPACTION] for log in self._uncleanable()}

    def uncleanable_bytes(self) -> int:
        return sum(log.segments.size_bytes for log in self._uncleanable())

    def _uncleanable(self) -> list[PartitionLog]:
        return [log for log in self._directory.logs() if COMPACTION in log.failed_upkeep]

    async def clean_dirtiest(self) -> bool:
        """Compact the dirtiest log. Returns False if no log is due."""
        found: tuple[PartitionLog, CleanableRange] | None = None
        self.dirtiest_ratio, self.looked_at_ms = 0.0, self._now_ms()
        for log in list(self._directory.logs()):
            await trio.lowlevel.checkpoint()
            range_ = None
            with self._directory.upkeep.guard(COMPACTION, failed=partial(self._failed, log)):
                range_ = self._check(log)
            if range_ is None:
                continue
            self.dirtiest_ratio = max(self.dirtiest_ratio, range_.dirty_ratio)
            if range_.is_due(log.config) and (found is None or range_.dirty_ratio > found[1].dirty_ratio):
                found = log, range_
        if found is None:
            return False
        log, range_ = found
        if log not in self._in_progress:  # another cleaner task may have taken it during this search
            self._in_progress.add(log)
            try:
                await self._clean(log, range_)
            finally:
                self._in_progress.discard(log)
        return True

    def _check(self, log: PartitionLog) -> CleanableRange | None:
        if not log.config.compacted or not log.writable or not isinstance(log.segments, Segments):
            return None
        if COMPACTION in log.failed_upkeep or log in self._put_off or log in self._in_progress:
            return None
        if must_roll(log.segments, log.config, self._now_ms()):
            log.roll(self._now_ms())
        return self._range(log)

    def _range(self, log: PartitionLog) -> CleanableRange:
        assert isinstance(log.segments, Segments), "`_check` skips other logs"
        return cleanable_range(
            log.segments,
            log.config,
            self._directory.kept.cleaned_to.get(log.tp, 0),
            log.log_start_offset,
            log.last_stable_offset,
            self._now_ms(),
        )

    async def _clean(self, log: PartitionLog, range_: CleanableRange) -> None:
        began = trio.current_time()
        try:
            with self._directory.upkeep.guard(COMPACTION, failed=partial(self._failed, log)):
                cleaning = await self._compact(log, range_)
                self.last = LastCleaning(cleaning.stats, trio.current_time() - began, range_.delay_ms)
                self._log_result(log, range_, cleaning)
        except CleaningInterrupted:
            self._put_off.add(log)
            logger.info("compaction cancelled, the log changed during it partition=%s", log.tp)

    async def _compact(self, log: PartitionLog, range_: CleanableRange) -> Cleaning:
        settings = self._settings()
        cleaning = Cleaning(log, range_, settings.limits.shared_by(settings.threads), self._now_ms())
        await self._drive(cleaning, settings.io_max_bytes_per_second / settings.threads)
        if not log.disowned:
            self._directory.kept.note_cleaned(log.tp, cleaning.cleaned_to)
            if UNCLEANABLE in log.store.sizes():
                log.store.remove(UNCLEANABLE)
        return cleaning

    async def _drive(self, cleaning: Cleaning, bytes_per_second: float) -> None:
        """Run the steps. Cancellation leaves the compaction as a crash would."""
        steps = cleaning.run()
        began = step_began = trio.current_time()
        total_bytes = 0
        try:
            for work in steps:
                now = trio.current_time()
                if isinstance(work, Offload):
                    await trio.to_thread.run_sync(work.run)
                else:
                    total_bytes += work
                    throttled = began + total_bytes / bytes_per_second - now
                    await trio.sleep(max(0.0, throttled, REST_PER_WORK * (now - step_began)))
                step_began = trio.current_time()
        finally:
            steps.close()

    def _failed(self, log: PartitionLog, error: Exception) -> None:
        """Whatever the error is, it is about this log: the others are compacted, as in Kafka (LogCleaner.cleanLog)."""
        if isinstance(error, CleaningInterrupted):
            raise error
        if is_shortage(error) or is_full_disk(error):
            self._put_off.add(log)
            self._directory.make_room(error)
            logger.warning("not compacted, the cleaner retries this log later partition=%s cause=%s", log.tp, error)
            return
        self._directory.upkeep.mark(COMPACTION, error, log)
        logger.error(
            "partition is uncleanable and is not compacted until a restart partition=%s cause=%s",
            log.tp,
            describe(error),
            exc_info=traced(error),
        )
        if isinstance(error, FlushFailed) and not str(error.filename).endswith(CLEANED):
            # Names in the directory may be lost, also those of new segments: more than the compaction has failed.
            if self._lose is None:
                raise error
            self._lose(log, error)
            return
        try:
            log.store.replace(UNCLEANABLE, describe(error).encode())
        except OSError as failure:
            logger.warning(
                "the mark of an uncleanable partition cannot be written partition=%s cause=%s", log.tp, failure
            )

    def _log_result(self, log: PartitionLog, range_: CleanableRange, cleaning: Cleaning) -> None:
        stats = cleaning.stats
        logger.info(
            "compacted partition=%s offsets=[%d,%d) read_bytes=%d written_bytes=%d records=%d kept=%d seconds=%.1f",
            log.tp,
            range_.first_dirty_offset,
            cleaning.cleaned_to,
            stats.read_bytes,
            stats.written_bytes,
            stats.records_read,
            stats.records_kept,
            self.last.seconds,
        )
        if stats.keyless:
            logger.warning("compaction removed records without a key partition=%s count=%d", log.tp, stats.keyless)
