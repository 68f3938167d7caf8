"""Which part of a log can be compacted, how urgent it is, and which segments are merged (row L4, KIP-58, KIP-354)."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from fencepost.broker.log.config import NEVER_MS, LogConfig
from fencepost.broker.log.storage.segment import NO_TIMESTAMP_MS, Segment
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.batch_header import HEADER_SIZE, CorruptBatch, read_header

MAX_RELATIVE_OFFSET = 2**31 - 1
"""The largest offset relative to the segment's base that an index entry can hold."""


class CleanableRange(NamedTuple):
    """The part of a log that a compaction would read."""

    first_dirty_offset: int
    """The end of the clean part: below it each key has one record, as of the last compaction."""
    upper_offset: int
    """The base offset of the first segment that must not be compacted."""
    clean_bytes: int
    dirty_bytes: int
    delay_ms: int
    """By how much `max.compaction.lag.ms` is exceeded."""

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.delay_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio)


def cleanable_range(
    segments: Segments, config: LogConfig, cleaned_to: int, log_start_offset: int, stable_offset: int, now_ms: int
) -> CleanableRange:
    """The range that can be compacted if the last compaction reached `cleaned_to`.

    It ends before the last stable offset (which is never above the high watermark), the active segment, and the first
    segment with a record younger than `min.compaction.lag.ms`. Raises CorruptLogFile and OSError.
    """
    first_dirty = cleaned_to if log_start_offset <= cleaned_to <= segments.end_offset else log_start_offset
    upper = min(segments.active.base_offset, next(iter(segments.from_offset(stable_offset))).base_offset)
    sealed = [segment for segment in segments if segment.base_offset < upper]
    dirty = [segment for segment in sealed if segment.next_offset > first_dirty]
    if config.min_compaction_lag_ms > 0:
        bound_ms = now_ms - config.min_compaction_lag_ms
        young = next((segment for segment in dirty if segment.max_timestamp_ms > bound_ms), None)
        if young is not None:
            upper = young.base_offset
            dirty = [segment for segment in dirty if segment.base_offset < upper]
    delay_ms = _delay_ms(dirty, config, now_ms)
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    clean_bytes = sum(segment.size_bytes for segment in sealed if segment.next_offset <= first_dirty)
    return CleanableRange(first_dirty, max(first_dirty, upper), clean_bytes, dirty_bytes, delay_ms)


def must_roll(segments: Segments, config: LogConfig, now_ms: int) -> bool:
    """Whether the active segment must be closed so that its oldest record is compacted in time (KIP-354)."""
    if not config.compacted or config.max_compaction_lag_ms >= NEVER_MS or not segments.active.size_bytes:
        return False
    return _delay_ms([segments.active], config, now_ms) > 0


def grouped(segments: Collection[Segment], config: LogConfig) -> list[list[Segment]]:
    """Groups of adjacent segments that fit into one: by bytes, by index entries and by the range of their offsets."""
    groups: list[list[Segment]] = []
    log_bytes = index_bytes = time_bytes = 0
    for segment in segments:
        log_bytes += segment.size_bytes
        index_bytes += segment.offsets.size_bytes
        time_bytes += segment.times.size_bytes
        if (
            groups
            and log_bytes <= config.segment_bytes
            and max(index_bytes, time_bytes) <= config.segment_index_bytes
            and segment.next_offset - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log_bytes, index_bytes = segment.size_bytes, segment.offsets.size_bytes
            time_bytes = segment.times.size_bytes
    return groups


def _delay_ms(segments: Sequence[Segment], config: LogConfig, now_ms: int) -> int:
    if config.max_compaction_lag_ms >= NEVER_MS:
        return 0
    times = [time for segment in segments if (time := _first_time_ms(segment)) > 0]
    return max(0, now_ms - config.max_compaction_lag_ms - min(times)) if times else 0


def _first_time_ms(segment: Segment) -> int:
    """The largest timestamp of the segment's first batch, as in Kafka; read from the file if it is not known yet."""
    if segment.first_timestamp_ms == NO_TIMESTAMP_MS and segment.size_bytes:
        try:
            segment.first_timestamp_ms = read_header(segment.file.read(0, HEADER_SIZE), whole=False).max_timestamp
        except CorruptBatch as error:
            raise CorruptLogFile(segment.file.place, 0, str(error)) from error
    return segment.first_timestamp_ms
