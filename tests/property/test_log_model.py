"""A partition log against a model made of plain lists: whatever happens to it, both tell the same story.

Rules: P2, P3, P9, P10 (sequences, windows, expiry), T9, T16 (markers), I1 to I3, I6, I7 (visibility, times), L1 to L3,
L7 (rolling, recovery, deletion, LogAppendTime). Crashes tear the last batch at any byte; in `fsync` durability they may
also lose all that was not synced.
"""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.producer_state import AppendOrigin
from fencepost.broker.log.reading import max_timestamp_offset, offset_for_timestamp, read_batches, readable_bytes
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.protocol.batch_header import BatchHeader, iter_headers
from fencepost.protocol.control_records import end_txn_marker
from fencepost.protocol.errors import ErrorCode
from tests.kit.examples import examples
from tests.kit.trimming import delete_records, housekeep
from tests.property.log_model import Model, ModelBatch
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
    settle,
)

pytestmark = pytest.mark.long

PRODUCERS = (1, 2, 3, 4)
MARKER_BYTES = len(end_txn_marker(1, 0, True, 0, NOW_MS))
DAY_MS = 24 * 3600 * 1000
LATENESS_MS = (0, 0, 700, 2500, -400)
"""How much older than the broker's clock a producer's timestamps are."""


class LogMachine(RuleBasedStateMachine):
    """Random histories of one partition."""

    @initialize(
        segment_bytes=st.sampled_from([160, 400, 1500, 1 << 20]),
        interval=st.sampled_from([0, 100, 400, 4096]),
        durability=st.sampled_from(["os", "fsync"]),
        append_time=st.booleans(),
        retention=st.sampled_from([(-1, -1), (-1, -1), (4000, -1), (-1, 600), (3000, 900)]),
        spares_open=st.sampled_from([True, True, False]),
        expiration_ms=st.sampled_from([DAY_MS, 3000]),
        segment_ms=st.sampled_from([DAY_MS, 1500]),
    )
    def begin(
        self,
        segment_bytes: int,
        interval: int,
        durability: str,
        append_time: bool,
        retention: tuple[int, int],
        spares_open: bool,
        expiration_ms: int,
        segment_ms: int,
    ) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            segment_ms=segment_ms,
            index_interval_bytes=interval,
            retention_ms=retention[0],
            retention_bytes=retention[1],
            retention_spares_open_transactions=spares_open,
            producer_id_expiration_ms=expiration_ms,
            message_timestamp_type="LogAppendTime" if append_time else "CreateTime",
        )
        self.durability = durability
        self.now_ms = NOW_MS
        self.store = MemoryStore()
        self.model = Model()
        self._open()

    def _open(self) -> None:
        self.directory = directory_over(self.store, self.durability)
        self.log = self.directory.create(TP, TOPIC_ID, self.config)
        self.housekeep()  # a crash may have brought back producers that had been forgotten

    def _send(self, data: bytearray) -> Ticket:
        return self.log.append(data, AppendOrigin.CLIENT, self.now_ms)

    def _batch(self, count: int, lateness_ms: int, *producer: int, transactional: bool = False) -> bytearray:
        return batch(count, *producer, transactional=transactional, timestamp_ms=self.now_ms - lateness_ms)

    def _stored_ms(self, lateness_ms: int) -> int:
        return self.now_ms if self.config.stamps_append_time else self.now_ms - lateness_ms

    def _appended(self, entry: ModelBatch) -> None:
        self.model.batches.append(entry)
        if self.durability == "os":
            self.model.high = self.model.end

    # Writing

    @rule(count=st.integers(1, 3), lateness_ms=st.sampled_from(LATENESS_MS))
    def append_plain(self, count: int, lateness_ms: int) -> None:
        data = self._batch(count, lateness_ms)
        info = self._send(data)
        assert (info.error, info.base_offset) == (ErrorCode.NONE, self.model.end)
        assert info.log_append_time_ms == (self.now_ms if self.config.stamps_append_time else -1)
        self._appended(ModelBatch(info.base_offset, info.last_offset, self._stored_ms(lateness_ms), len(data)))

    @rule(
        producer=st.sampled_from(PRODUCERS),
        count=st.integers(1, 3),
        transactional=st.booleans(),
        wrong=st.sampled_from([0, 0, 0, 1, 7]),
        lateness_ms=st.sampled_from(LATENESS_MS),
    )
    def append_of_producer(self, producer: int, count: int, transactional: bool, wrong: int, lateness_ms: int) -> None:
        model = self.model
        transactional = transactional or model.is_open(producer)
        epoch = model.epoch(producer)
        window = model.window(producer)
        sequence = (window[-1].sequence + window[-1].last - window[-1].first + 1 if window else 0) + wrong
        data = self._batch(count, lateness_ms, producer, epoch, sequence, transactional=transactional)
        info = self._send(data)
        if wrong and model.of(producer):
            assert info.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            return
        assert (info.error, info.base_offset, info.duplicate) == (ErrorCode.NONE, model.end, False)
        stored_ms = self._stored_ms(lateness_ms)
        self._appended(
            ModelBatch(
                info.base_offset, info.last_offset, stored_ms, len(data), producer, epoch, sequence, transactional
            )
        )

    @rule(producer=st.sampled_from(PRODUCERS), back=st.integers(0, 4))
    def repeat(self, producer: int, back: int) -> None:
        window = self.model.window(producer)
        if back >= len(window):
            return
        old = window[-1 - back]
        count = old.last - old.first + 1
        info = self._send(self._batch(count, 0, producer, old.epoch, old.sequence, transactional=old.transactional))
        assert (info.error, info.duplicate, info.base_offset) == (ErrorCode.NONE, True, old.first)
        assert info.log_append_time_ms == (old.timestamp_ms if self.config.stamps_append_time else -1)

    @rule(producer=st.sampled_from(PRODUCERS), commit=st.booleans(), version=st.sampled_from([1, 2]))
    def mark(self, producer: int, commit: bool, version: int) -> None:
        epoch = self.model.epoch(producer) + (version == 2)
        info = self.log.append_marker(producer, epoch, commit, 0, version, self.now_ms)
        assert (info.error, info.base_offset) == (ErrorCode.NONE, self.model.end)
        offset = info.base_offset
        self._appended(ModelBatch(offset, offset, self.now_ms, MARKER_BYTES, producer, epoch, -1, True, commit))

    @rule(producer=st.sampled_from(PRODUCERS))
    def zombie(self, producer: int) -> None:
        epoch = self.model.epoch(producer)
        if not epoch or not self.model.of(producer):
            return
        end = self.log.log_end_offset
        fenced = ErrorCode.INVALID_PRODUCER_EPOCH
        assert self._send(self._batch(1, 0, producer, epoch - 1, 0)).error is fenced
        assert self.log.append_marker(producer, epoch - 1, True, 0, 1, self.now_ms).error is fenced
        assert self.log.log_end_offset == end

    # Time passes, upkeep is done

    @rule(passed_ms=st.sampled_from([1, 400, 1000, 3000]))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def sync(self) -> None:
        settle(self.log)
        self.model.high = self.model.end

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()
        self.directory.write_checkpoints()

    @rule()
    def housekeep(self) -> None:
        first_offset, ends = self._segments()
        housekeep(self.log, self.now_ms)
        self.model.expire(PRODUCERS, self.now_ms, self.config.producer_id_expiration_ms)
        self.model.retain(first_offset, ends, self.config, self.now_ms)

    def _segments(self) -> tuple[int, list[int]]:
        """Where the log is divided is its own affair: the first segment's base offset and the end of each."""
        segments = self.log.segments
        return segments.first_offset, [fact.next_offset for fact in segments.facts()]

    @rule(back=st.integers(0, 12))
    def delete_records(self, back: int) -> None:
        offset = max(0, self.model.high - back)
        first_offset, ends = self._segments()
        code, start = delete_records(self.log, offset)
        if offset > self.model.start:
            self.model.start = offset
            self.model.retain(first_offset, ends, replace(self.config, retention_ms=-1), self.now_ms)
        assert (code, start) == (ErrorCode.NONE, self.model.start)

    @rule(retention_ms=st.sampled_from([-1, 2000, 5000]), retention_bytes=st.sampled_from([-1, 300, 1200]))
    def alter_retention(self, retention_ms: int, retention_bytes: int) -> None:
        self.config = replace(self.config, retention_ms=retention_ms, retention_bytes=retention_bytes)
        self.log.config = self.config

    # Ends and beginnings

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
        self.model.tear()
        self._open()

    # Reading

    @rule(age_ms=st.integers(-500, 12_000))
    def find_by_time(self, age_ms: int) -> None:
        log, model = self.log, self.model
        for isolation, upper in ((UNCOMMITTED, model.high), (COMMITTED, model.lso)):
            found = offset_for_timestamp(log, self.now_ms - age_ms, isolation)
            expected = model.first_at_or_after(self.now_ms - age_ms, upper)
            assert (None if found is None else found.offset) == expected
            newest = max_timestamp_offset(log, isolation)
            assert (None if newest is None else (newest.timestamp_ms, newest.offset)) == model.newest(upper)

    @invariant()
    def bounds(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        assert (log.high_watermark, log.last_stable_offset) == (model.high, model.lso)
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset

    @invariant()
    def producers(self) -> None:
        model = self.model
        undecided = [(txn.first_offset, txn.producer_id) for txn in self.log.producers.open_transactions()]
        assert undecided == model.open_transactions()
        known = {producer for producer in PRODUCERS if model.of(producer) or model.is_open(producer)}
        assert {entry.producer_id for entry in self.log.producers.entries()} == known

    @invariant()
    def readers_see_what_they_should(self) -> None:
        model = self.model
        for isolation, upper in ((UNCOMMITTED, model.high), (COMMITTED, model.lso)):
            readable = model.batches if upper > model.start else []
            expected = [(b.first, b.last) for b in readable if b.last >= model.start and b.first < upper]
            got = headers(self.log, isolation, max_bytes=250)
            assert [(header.base_offset, header.last_offset) for header in got] == expected
            assert readable_bytes(self.log, model.start, isolation) == sum(header.size_bytes for header in got)

    @invariant()
    def aborted_lists_hold_what_overlaps(self) -> None:
        model = self.model
        aborted = [(p, first, marker) for p, first, marker, lost in model.transactions() if lost]
        for offset in range(model.start, model.lso, 3):
            for max_bytes in (1, 300, 1 << 20):
                result = read_batches(self.log, offset, max_bytes, COMMITTED)
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
TestLogModel.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
