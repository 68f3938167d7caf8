"""The log cleaner: chooses the dirtiest log, makes time for its compaction, and notes how far it came.

A compaction computes in the event loop, a millisecond at a time, and rests three times as long as it worked: a busy
broker hardly feels it, and it never takes more than a quarter of one core. What waits for the disk or for a codec is
done in a thread. `log.cleaner.threads` says how many such compactions go on at a time, as in Kafka.
"""

import logging
import math
from collections.abc import Callable
from typing import NamedTuple

import trio

from fencepost.broker.log.compaction.cleanable import CleanableRange, cleanable_range, must_roll
from fencepost.broker.log.compaction.cleaning import Cleaning, CleaningInterrupted, CleaningLimits, CleaningStats
from fencepost.broker.log.compaction.record_work import Offload
from fencepost.broker.log.compaction.swap import CLEANED
from fencepost.broker.log.deletions import FULL_DISK
from fencepost.broker.log.directory import LogDirectory
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import CorruptLogFile, FlushFailed
from fencepost.protocol.topics import TopicPartition

REST_PER_WORK = 3.0

logger = logging.getLogger(__name__)


class CleanerSettings(NamedTuple):
    """The settings log.cleaner.*; they may change between two compactions. Rate and memory are those of all `threads`
    together: each has its share.
    """

    enabled: bool = True
    threads: int = 1
    backoff_ms: int = 15_000
    io_max_bytes_per_second: float = math.inf
    limits: CleaningLimits = CleaningLimits()


class LastCleaning(NamedTuple):
    """What the last compaction did, for the metrics."""

    stats: CleaningStats
    seconds: float
    delay_ms: int


class LogCleaner:
    """Compacts the logs of a directory, a few at a time, for as long as `run` does."""

    def __init__(
        self,
        directory: LogDirectory,
        settings: Callable[[], CleanerSettings],
        now_ms: Callable[[], int],
        lose: Callable[[PartitionLog, OSError], None] | None = None,
    ) -> None:
        """`lose` is told of a log whose directory could not be flushed; without it that is raised by `run`."""
        self._directory = directory
        self._settings = settings
        self._now_ms = now_ms
        self._lose = lose
        self._put_off: set[PartitionLog] = set()
        self._under_way: set[PartitionLog] = set()
        self._uncleanable: dict[PartitionLog, str] = {}
        self.dirtiest_ratio = 0.0
        """Of the logs looked at in the last round."""
        self.looked_at_ms = now_ms()
        """When that was."""
        self.last = LastCleaning(CleaningStats(), 0.0, 0)

    async def run(self) -> None:
        """Compact what is due, rest for log.cleaner.backoff.ms, and again, until cancelled.

        Raises OSError, in a group, when a directory could not be flushed and the process must end.
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
            pass  # it does the work

    def uncleanable(self) -> dict[TopicPartition, str]:
        """The partitions whose compaction failed, and why; they are left alone until the next start."""
        self._uncleanable = {log: why for log, why in self._uncleanable.items() if not log.disowned}
        return {log.tp: why for log, why in self._uncleanable.items()}

    def uncleanable_bytes(self) -> int:
        """Bytes of their logs."""
        return sum(log.segments.size_bytes for log in self._uncleanable if not log.disowned)

    async def clean_dirtiest(self) -> bool:
        """Compact the log that needs it most; False where none does."""
        found: tuple[PartitionLog, CleanableRange] | None = None
        self.dirtiest_ratio, self.looked_at_ms = 0.0, self._now_ms()
        for log in list(self._directory.logs()):
            await trio.lowlevel.checkpoint()
            range_ = self._look_at(log)
            if range_ is None:
                continue
            self.dirtiest_ratio = max(self.dirtiest_ratio, range_.dirty_ratio)
            if range_.is_due(log.config) and (found is None or range_.dirty_ratio > found[1].dirty_ratio):
                found = log, range_
        if found is None:
            return False
        log, range_ = found
        if log not in self._under_way:  # another may have taken it while this one looked
            self._under_way.add(log)
            try:
                await self._clean(log, range_)
            finally:
                self._under_way.discard(log)
        return True

    def _look_at(self, log: PartitionLog) -> CleanableRange | None:
        if not log.config.compacted or not log.writable or not isinstance(log.segments, Segments):
            return None
        if log in self._uncleanable or log in self._put_off or log in self._under_way:
            return None
        try:
            if must_roll(log.segments, log.config, self._now_ms()):
                log.roll(self._now_ms())
            return self._range(log)
        except (OSError, CorruptLogFile) as error:
            self._give_up(log, error)
            return None

    def _range(self, log: PartitionLog) -> CleanableRange:
        assert isinstance(log.segments, Segments), "others are not looked at"
        return cleanable_range(
            log.segments,
            log.config,
            self._directory.cleaned_to(log.tp),
            log.log_start_offset,
            log.last_stable_offset,
            self._now_ms(),
        )

    async def _clean(self, log: PartitionLog, range_: CleanableRange) -> None:
        settings = self._settings()
        began = trio.current_time()
        cleaning = Cleaning(log, range_, settings.limits.shared_by(settings.threads), self._now_ms())
        try:
            await self._drive(cleaning, settings.io_max_bytes_per_second / settings.threads)
            if not log.disowned:
                self._directory.note_cleaned(log.tp, cleaning.cleaned_to)
        except CleaningInterrupted:
            self._put_off.add(log)
            logger.info("compaction given up, the log changed under it partition=%s", log.tp)
            return
        except (OSError, CorruptLogFile) as error:
            self._give_up(log, error)
            return
        self.last = LastCleaning(cleaning.stats, trio.current_time() - began, range_.delay_ms)
        self._tell(log, range_, cleaning)

    async def _drive(self, cleaning: Cleaning, bytes_per_second: float) -> None:
        """Go through the steps; cancelled, the one under way is left as a crash would leave it."""
        steps = cleaning.run()
        began = trio.current_time()
        total_bytes = 0
        answer: object = None
        try:
            while True:
                step_began = trio.current_time()
                try:
                    work = steps.send(answer)
                except StopIteration:
                    return
                now = trio.current_time()
                answer = None
                if isinstance(work, Offload):
                    answer = await trio.to_thread.run_sync(work.job)
                else:
                    total_bytes += work
                    throttled = began + total_bytes / bytes_per_second - now
                    await trio.sleep(max(0.0, throttled, REST_PER_WORK * (now - step_began)))
        finally:
            steps.close()

    def _give_up(self, log: PartitionLog, error: OSError | CorruptLogFile) -> None:
        if isinstance(error, OSError) and error.errno in FULL_DISK:
            self._put_off.add(log)
            self._directory.make_room(error)
            logger.warning("no room to compact, tried again later partition=%s cause=%s", log.tp, error)
            return
        self._uncleanable[log] = str(error)
        if isinstance(error, FlushFailed) and not str(error.filename).endswith(CLEANED):
            # The names in a directory may be lost, those of new segments with them: that is more than a compaction.
            if self._lose is None:
                raise error
            self._lose(log, error)
        logger.error("partition is uncleanable and is not compacted any more partition=%s cause=%s", log.tp, error)

    def _tell(self, log: PartitionLog, range_: CleanableRange, cleaning: Cleaning) -> None:
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
            logger.warning(
                "records without a key went with the compaction partition=%s count=%d", log.tp, stats.keyless
            )
