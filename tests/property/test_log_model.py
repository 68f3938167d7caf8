"""A partition log against a model made of plain lists: whatever happens to it, both tell the same story.

Rules: P2, P3, P9 (sequences and windows), T9, T16 (markers), I1 to I3, I7 (visibility), L1 to L3 (rolling, recovery,
deletion). Crashes tear the last batch at any byte; in `fsync` durability they may also lose all that was not synced.
"""

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.memory import MemoryStore
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import BatchHeader, iter_headers
from tests.unit.log.kit import (
    COMMITTED,
    NOW_MS,
    TOPIC_ID,
    TP,
    UNCOMMITTED,
    batch,
    crashed,
    directory_over,
    headers,
    joined,
    log_file,
    send,
    settle,
)

PRODUCERS = (1, 2, 3, 4)


@dataclass
class ModelBatch:
    """One batch of the model's log."""

    first: int
    last: int
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
    start: int = 0
    high: int = 0
    epochs: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def transactions(self) -> list[tuple[int, int, int | None, bool]]:
        """(producer, first offset, marker's offset or None, aborted) of every transaction with data."""
        found: list[tuple[int, int, int | None, bool]] = []
        is_open: dict[int, int] = {}
        for entry in self.batches:
            if entry.commit is not None:
                first = is_open.pop(entry.producer, None)
                if first is not None:
                    found.append((entry.producer, first, entry.first, not entry.commit))
            elif entry.transactional:
                is_open.setdefault(entry.producer, entry.first)
        return found + [(producer, first, None, False) for producer, first in is_open.items()]

    def is_open(self, producer: int) -> bool:
        return any(p == producer and marker is None for p, _, marker, _ in self.transactions())

    @property
    def lso(self) -> int:
        unstable = [first for _, first, marker, _ in self.transactions() if marker is None or marker >= self.high]
        return max(self.start, min([self.high, *unstable]))

    def window(self, producer: int) -> list[ModelBatch]:
        """The producer's batches of its epoch since it began, oldest first."""
        window: list[ModelBatch] = []
        epoch = None
        for entry in self.batches:
            if entry.producer == producer:
                if entry.epoch != epoch:
                    window, epoch = [], entry.epoch
                if entry.commit is None:
                    window.append(entry)
        return window[-5:]


class LogMachine(RuleBasedStateMachine):
    """Random histories of one partition."""

    @initialize(
        segment_bytes=st.sampled_from([160, 400, 1500, 1 << 20]),
        interval=st.sampled_from([0, 100, 400, 4096]),
        durability=st.sampled_from(["os", "fsync"]),
    )
    def begin(self, segment_bytes: int, interval: int, durability: str) -> None:
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval, retention_ms=-1)
        self.durability = durability
        self.store = MemoryStore()
        self.model = Model()
        self._open()

    def _open(self) -> None:
        self.directory = directory_over(self.store, self.durability)
        self.log = self.directory.create(TP, TOPIC_ID, self.config)

    def _appended(self, entry: ModelBatch) -> None:
        self.model.batches.append(entry)
        if self.durability == "os":
            self.model.high = self.model.end

    @rule(count=st.integers(1, 3))
    def append_plain(self, count: int) -> None:
        data = batch(count)
        info = send(self.log, data)
        assert (info.error, info.base_offset) == (ErrorCode.NONE, self.model.end)
        self._appended(ModelBatch(info.base_offset, info.last_offset))

    @rule(
        producer=st.sampled_from(PRODUCERS),
        count=st.integers(1, 3),
        transactional=st.booleans(),
        wrong=st.sampled_from([0, 0, 0, 1, 7]),
    )
    def append_of_producer(self, producer: int, count: int, transactional: bool, wrong: int) -> None:
        model = self.model
        is_open = model.is_open(producer)
        transactional = transactional or is_open
        epoch = model.epochs.get(producer, 0)
        window = model.window(producer)
        known = any(entry.producer == producer for entry in model.batches)
        sequence = (window[-1].sequence + window[-1].last - window[-1].first + 1 if window else 0) + wrong
        data = batch(count, producer, epoch, sequence, transactional=transactional)
        info = send(self.log, data)
        if wrong and known:
            assert info.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            return
        assert (info.error, info.base_offset, info.duplicate) == (ErrorCode.NONE, model.end, False)
        self._appended(ModelBatch(info.base_offset, info.last_offset, producer, epoch, sequence, transactional))
        model.epochs[producer] = epoch

    @rule(producer=st.sampled_from(PRODUCERS), back=st.integers(0, 4))
    def repeat(self, producer: int, back: int) -> None:
        window = self.model.window(producer)
        if back >= len(window):
            return
        old = window[-1 - back]
        data = batch(old.last - old.first + 1, producer, old.epoch, old.sequence, transactional=old.transactional)
        info = send(self.log, data)
        assert (info.error, info.duplicate, info.base_offset) == (ErrorCode.NONE, True, old.first)

    @rule(producer=st.sampled_from(PRODUCERS), commit=st.booleans(), version=st.sampled_from([1, 2]))
    def mark(self, producer: int, commit: bool, version: int) -> None:
        epoch = self.model.epochs.get(producer, 0) + (version == 2)
        info = self.log.append_marker(producer, epoch, commit, 0, version, NOW_MS)
        assert (info.error, info.base_offset) == (ErrorCode.NONE, self.model.end)
        marker = ModelBatch(info.base_offset, info.base_offset, producer, epoch, -1, True, commit)
        self.model.epochs[producer] = epoch
        self._appended(marker)

    @rule(producer=st.sampled_from(PRODUCERS))
    def zombie(self, producer: int) -> None:
        epoch = self.model.epochs.get(producer, 0)
        if not epoch or not any(entry.producer == producer for entry in self.model.batches):
            return
        end = self.log.log_end_offset
        assert send(self.log, batch(1, producer, epoch - 1, 0)).error is ErrorCode.INVALID_PRODUCER_EPOCH
        assert self.log.append_marker(producer, epoch - 1, True, 0, 1, NOW_MS).error is ErrorCode.INVALID_PRODUCER_EPOCH
        assert self.log.log_end_offset == end

    @rule()
    def sync(self) -> None:
        settle(self.log)
        self.model.high = self.model.end

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()
        self.directory.write_checkpoints()

    @rule(back=st.integers(0, 12))
    def delete_records(self, back: int) -> None:
        offset = max(0, self.model.high - back)
        code, start = self.log.delete_records(offset)
        self.model.start = max(self.model.start, offset)
        assert (code, start) == (ErrorCode.NONE, self.model.start)

    @rule()
    def close_and_open(self) -> None:
        self.directory.close()
        self.model.high = self.model.end
        self._open()

    @rule()
    def crash(self) -> None:
        self.store = crashed(self.store)
        self.model.high = self.model.end
        self._open()

    @precondition(lambda self: self.model.end > self.model.high or self.durability == "os")
    @rule(data=st.data())
    def crash_and_tear_the_last_batch(self, data: st.DataObject) -> None:
        """Lose any number of bytes of the last batch; in `fsync` only a batch that no reader has seen can be torn."""
        store = crashed(self.store)
        last = headers_of_file(store)
        if not last or last[-1].base_offset < max(self.model.start, self.log.recovery_point):
            return
        file = log_file(store)
        torn = data.draw(st.integers(1, last[-1].size_bytes))
        del file.data[len(file.data) - torn :]
        self.store = store
        self.model.batches.pop()
        self.model.high = self.model.end
        self.model.start = min(self.model.start, self.model.end)
        self._forget_epochs()
        self._open()

    def _forget_epochs(self) -> None:
        self.model.epochs = {entry.producer: entry.epoch for entry in self.model.batches if entry.producer >= 0}

    @invariant()
    def bounds(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        assert (log.high_watermark, log.last_stable_offset) == (model.high, model.lso)
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset

    @invariant()
    def open_transactions(self) -> None:
        undecided = [(first, p) for p, first, marker, _ in self.model.transactions() if marker is None]
        assert [(txn.first_offset, txn.producer_id) for txn in self.log.open_transactions()] == sorted(undecided)

    @invariant()
    def readers_see_what_they_should(self) -> None:
        model = self.model
        for isolation, upper in ((UNCOMMITTED, model.high), (COMMITTED, model.lso)):
            readable = model.batches if upper > model.start else []
            expected = [(b.first, b.last) for b in readable if b.last >= model.start and b.first < upper]
            got = headers(self.log, isolation, max_bytes=250)
            assert [(header.base_offset, header.last_offset) for header in got] == expected
            assert self.log.readable_bytes(model.start, isolation) == sum(header.size_bytes for header in got)

    @invariant()
    def aborted_lists_hold_what_overlaps(self) -> None:
        model = self.model
        aborted = [(p, first, marker) for p, first, marker, lost in model.transactions() if lost]
        for offset in range(model.start, model.lso, 3):
            for max_bytes in (1, 300, 1 << 20):
                result = self.log.read(offset, max_bytes, COMMITTED)
                got = [header for _, header in iter_headers(joined(result.parts))]
                if not got:
                    continue
                upper = got[-1].next_offset
                expected = sorted((first, p) for p, first, marker in aborted if marker >= offset and first < upper)
                assert [(first, p) for p, first in result.aborted] == expected


def headers_of_file(store: MemoryStore) -> list[BatchHeader]:
    """The batches in the last segment file of a store."""
    if not any(name.endswith(".log") for name in store.child(str(TP)).sizes()):
        return []
    return [header for _, header in iter_headers(bytes(log_file(store).data))]


TestLogModel = LogMachine.TestCase
TestLogModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
