"""Logs of coordinators in memory: slow, held back, refused or lost as a test wants it, and cut by a power cut."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import trio

from fencepost.coordinator.ports import KeyValue, LogListener, LogWriteFailed, ProducerTag, ReplayedBatch
from fencepost.protocol.errors import ErrorCode
from tests.kit.clocks import START_MS

BatchT = TypeVar("BatchT")
WANTED = "the test wants it so"


@dataclass
class MemoryTicket:
    """An append to a `MemoryLog`, or a look at its end."""

    log: "MemoryLog[object]"
    end_offset: int

    @property
    def is_durable(self) -> bool:
        return self.log.is_durable(self.end_offset)

    def request(self) -> None:
        """It becomes durable when somebody waits for it."""

    async def durable(self) -> None:
        await self.log.durable(self.end_offset)


@dataclass
class MemoryLog(Generic[BatchT]):
    """What logs of all kinds of batches share. `delay` seconds pass until an append is durable; without a delay it is
    so `at_once`, or as soon as somebody waits for it."""

    delay: float = 0.0
    at_once: bool = True
    batches: list[BatchT] = field(default_factory=list)
    end_offset: int = 0
    durable_end: int = 0
    appends: int = 0
    lost: ErrorCode | None = None
    """What a failed flush says to who waits for it."""
    released: trio.Event | None = None

    @property
    def newest(self) -> MemoryTicket:
        return MemoryTicket(self, self.end_offset)  # type: ignore[arg-type]

    def hold(self) -> None:
        """Nothing gets durable until `release`."""
        self.released = trio.Event()

    def release(self) -> None:
        assert self.released is not None
        self.released.set()
        self.released = None

    def is_durable(self, end_offset: int) -> bool:
        if self.at_once and not self.delay and self.released is None and self.lost is None:
            self.durable_end = max(self.durable_end, end_offset)
        return self.durable_end >= end_offset

    async def durable(self, end_offset: int) -> None:
        if self.lost is not None:
            raise LogWriteFailed(self.lost, WANTED)
        while self.released is not None:
            await self.released.wait()
        if self.durable_end < end_offset and self.delay:
            await trio.sleep(self.delay)
        self.durable_end = max(self.durable_end, end_offset)

    def _grow(self, batch: BatchT, count: int) -> MemoryTicket:
        self.batches.append(batch)
        self.appends += 1
        self.end_offset += count
        return self.newest


@dataclass
class CoordinatorLog(MemoryLog[ReplayedBatch]):
    """One partition of an internal topic; `refuses` refuses appends."""

    refuses: ErrorCode | None = None
    listener: LogListener | None = None
    leader_epoch: int = 0

    def append(self, records: Sequence[KeyValue], now_ms: int, producer: ProducerTag | None = None) -> MemoryTicket:
        if self.refuses is not None:
            raise LogWriteFailed(self.refuses, WANTED)
        assert records
        producer_id, epoch = (producer.producer_id, producer.producer_epoch) if producer else (-1, -1)
        return self._add(
            ReplayedBatch(self.end_offset, producer_id, epoch, bool(producer), None, list(records), now_ms)
        )

    def append_marker(self, producer_id: int, commit: bool) -> None:
        self._add(ReplayedBatch(self.end_offset, producer_id, 0, True, commit, (), START_MS))

    def _add(self, batch: ReplayedBatch) -> MemoryTicket:
        return self._grow(batch, len(batch.records) or 1)

    def replay(self) -> Iterator[ReplayedBatch]:
        return iter(self.batches)

    def records(self) -> list[KeyValue]:
        """What all batches hold."""
        return [record for batch in self.batches for record in batch.records]

    def survivor(self) -> "CoordinatorLog":
        """The log as a power cut leaves it."""
        log = CoordinatorLog(self.delay)
        for batch in self.batches:
            if batch.base_offset < self.durable_end:
                log.durable_end = log._add(batch).end_offset
        log.appends = 0
        return log


@dataclass
class CoordinatorLogs:
    """All partitions of an internal topic."""

    count: int = 50
    delay: float = 0.0
    logs: dict[int, CoordinatorLog] = field(default_factory=dict)

    def log(self, partition: int) -> CoordinatorLog:
        return self.logs.setdefault(partition, CoordinatorLog(self.delay))

    def existing(self) -> Collection[int]:
        return sorted(self.logs)

    def survivors(self) -> "CoordinatorLogs":
        """What is left after a power cut."""
        return CoordinatorLogs(self.count, self.delay, {number: log.survivor() for number, log in self.logs.items()})

    def refuse(self, code: ErrorCode | None) -> None:
        """Refuse appends with `code`, or take them again."""
        for log in self.logs.values():
            log.refuses = code
