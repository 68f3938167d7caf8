"""What a partition log should hold, as plain lists and dicts: the rules by definition, without any index or state."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fencepost.broker.log.config import LogConfig


@dataclass
class ModelBatch:
    """One batch of the model's log."""

    first: int
    last: int
    timestamp_ms: int
    size_bytes: int
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    commit: bool | None = None
    """The verdict of a marker; None for data."""


@dataclass
class Model:
    """What the log should hold, and what follows from it by definition."""

    batches: list[ModelBatch] = field(default_factory=list)
    """All that was ever written, deleted or not: what producers did outlives the data (row 9 of section 0)."""
    start: int = 0
    high: int = 0
    forgotten: dict[int, list[int]] = field(default_factory=dict)
    """Where the log ended each time a producer was forgotten (P10)."""

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def of(self, producer: int) -> list[ModelBatch]:
        """What the producer wrote since it was last forgotten."""
        since = max(self.forgotten.get(producer, ()), default=0)
        return [batch for batch in self.batches if batch.producer == producer and batch.first >= since]

    def epoch(self, producer: int) -> int:
        """The producer's epoch, by its own account: it does not forget it when the log does."""
        return max((batch.epoch for batch in self.batches if batch.producer == producer), default=0)

    def transactions(self) -> list[tuple[int, int, int | None, bool]]:
        """(producer, first offset, marker's offset or None, aborted) of every transaction with data."""
        found: list[tuple[int, int, int | None, bool]] = []
        is_open: dict[int, int] = {}
        for batch in self.batches:
            if batch.commit is not None:
                first = is_open.pop(batch.producer, None)
                if first is not None:
                    found.append((batch.producer, first, batch.first, not batch.commit))
            elif batch.transactional:
                is_open.setdefault(batch.producer, batch.first)
        return found + [(producer, first, None, False) for producer, first in is_open.items()]

    def open_transactions(self) -> list[tuple[int, int]]:
        """(first offset, producer), oldest first."""
        return sorted((first, producer) for producer, first, marker, _ in self.transactions() if marker is None)

    def is_open(self, producer: int) -> bool:
        return any(owner == producer for _, owner in self.open_transactions())

    @property
    def lso(self) -> int:
        """I1."""
        unstable = [first for _, first, marker, _ in self.transactions() if marker is None or marker >= self.high]
        return max(self.start, min([self.high, *unstable]))

    def window(self, producer: int) -> list[ModelBatch]:
        """P3: the producer's batches of its epoch since it began, the last five, oldest first."""
        window: list[ModelBatch] = []
        epoch = None
        for batch in self.of(producer):
            if batch.epoch != epoch:
                window, epoch = [], batch.epoch
            if batch.commit is None:
                window.append(batch)
        return window[-5:]

    def expire(self, producers: Sequence[int], now_ms: int, expiration_ms: int) -> None:
        """P10: idle by the timestamp of the last batch or marker, and no transaction open."""
        for producer in producers:
            known = self.of(producer)
            if known and not self.is_open(producer) and now_ms - known[-1].timestamp_ms >= expiration_ms:
                self.forgotten.setdefault(producer, []).append(self.end)

    def tear(self) -> None:
        """The last batch is gone as if it had never been written."""
        torn = self.batches.pop()
        for producer, ends in self.forgotten.items():
            if producer == torn.producer:  # what came of it later is gone, too
                ends[:] = [end for end in ends if end <= torn.first]
            else:
                ends[:] = [min(end, self.end) for end in ends]
        self.high = self.end
        self.start = min(self.start, self.end)

    def retain(self, first_offset: int, segment_ends: Sequence[int], config: LogConfig, now_ms: int) -> None:
        """L3: move the start over whole segments that are too old or too much, as far as may be."""
        undecided = (
            [first for first, _ in self.open_transactions()] if config.retention_spares_open_transactions else []
        )
        bound = min([self.high, *undecided])
        segments = list(self._segments(first_offset, segment_ends))
        total_bytes = sum(size_bytes for _, size_bytes, _ in segments)
        for end, size_bytes, newest_ms in segments:
            too_old = config.retention_ms >= 0 and 0 <= newest_ms < now_ms - config.retention_ms
            too_much = config.retention_bytes >= 0 and total_bytes - size_bytes >= config.retention_bytes
            if end > bound or not (too_old or too_much or end <= self.start):
                return
            total_bytes -= size_bytes
            self.start = max(self.start, end)

    def _segments(self, first_offset: int, ends: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """(end offset, bytes, newest timestamp) of every segment that holds something."""
        for begin, end in pairwise([first_offset, *ends]):
            inside = [batch for batch in self.batches if begin <= batch.first < end]
            if inside:
                yield end, sum(batch.size_bytes for batch in inside), max(batch.timestamp_ms for batch in inside)

    def first_at_or_after(self, timestamp_ms: int, upper: int) -> int | None:
        """I6: the offset of the first record that is not earlier."""
        for batch in self.batches:
            if batch.last >= self.start and batch.timestamp_ms >= timestamp_ms:
                offset = max(batch.first, self.start)
                return offset if offset < upper else None
        return None

    def newest(self, upper: int) -> tuple[int, int] | None:
        """KIP-734: (timestamp, offset) of the first record with the largest timestamp."""
        seen = [b for b in self.batches if b.last >= self.start and b.first < upper and b.timestamp_ms >= 0]
        if not seen or upper <= self.start:
            return None
        best = max(seen, key=lambda batch: (batch.timestamp_ms, -batch.first))
        return best.timestamp_ms, max(best.first, self.start)
