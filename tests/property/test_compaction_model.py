"""A compacted log against a dict: whatever happens to it, a reader of committed data builds the same table.

Rules: L4 to L6, P3 to P5 over compaction, I1, I2, L2, L3. A compaction is held in the middle while the log is written
to, rolled, cut, crashed and opened again; nothing aborted is ever visible, and every producer goes on where it was.
"""

from collections.abc import Iterator
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.broker.log.compaction.cleaning import CleaningInterrupted, CleaningLimits, Steps
from fencepost.broker.log.compaction.offset_map import SLOT_BYTES
from fencepost.broker.log.compaction.record_work import Offload
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from tests.kit.examples import examples
from tests.kit.trimming import delete_records
from tests.unit.log.compaction_kit import COMPACT, HOUR_MS, Pair, batches, begin, keyed, seen, segments_of
from tests.unit.log.kit import COMMITTED, NOW_MS, TOPIC_ID, TP, crashed, directory_over, send, settle

PRODUCERS = (1, 2, 3)
PAIRS = st.lists(
    st.tuples(st.sampled_from("abcde"), st.sampled_from(["1", "2", "long" * 5, None])), max_size=4, min_size=1
)


class CompactionMachine(RuleBasedStateMachine):
    """Random histories of one compacted partition."""

    @initialize(
        segment_bytes=st.sampled_from([200, 400, 1500]),
        durability=st.sampled_from(["os", "fsync"]),
        keys=st.sampled_from([2, 4, 1000]),
    )
    def open_first(self, segment_bytes: int, durability: str, keys: int) -> None:
        """An empty log; `keys` bounds the cleaner's memory."""
        self.config = replace(COMPACT, segment_bytes=segment_bytes)
        self.durability = durability
        self.limits = CleaningLimits(keys * SLOT_BYTES)
        self.store = MemoryStore()
        self.now_ms = NOW_MS
        self.cleaned_to = 0
        self.records: dict[int, tuple[Pair, int]] = {}
        """By offset: the pair, and the transaction it belongs to (0: none)."""
        self.outcomes: dict[int, bool | None] = {}
        self.decided_at: dict[int, int] = {}
        self.open: dict[int, tuple[int, int]] = {}
        """By producer: its transaction and where that began."""
        self.sequences: dict[int, tuple[int, int]] = {}
        self.windows: dict[int, tuple[int, int, list[Pair], bool]] = {}
        self.end = self.start = self.high = 0
        self.steps: Steps | None = None
        self._open()

    def _open(self) -> None:
        self.directory = directory_over(self.store, self.durability)
        self.log = self.directory.create(TP, TOPIC_ID, self.config)
        self.high = self.end

    def _took(self, pairs: list[Pair], transaction: int) -> None:
        for pair in pairs:
            self.records[self.end] = pair, transaction
            self.end += 1
        self._settled()

    def _settled(self) -> None:
        if self.durability == "os":
            self.high = self.end

    # Writers

    @rule(pairs=PAIRS, codec=st.sampled_from([Compression.NONE, Compression.NONE, Compression.GZIP]))
    def write(self, pairs: list[Pair], codec: Compression) -> None:
        info = send(self.log, keyed(pairs, compression=codec))
        assert (info.error, info.base_offset) == (ErrorCode.NONE, self.end)
        self._took(pairs, 0)

    @rule(producer=st.sampled_from(PRODUCERS), pairs=PAIRS, transactional=st.booleans(), gap=st.sampled_from([0, 0, 3]))
    def produce(self, producer: int, pairs: list[Pair], transactional: bool, gap: int) -> None:
        """P4: the next sequence is taken, also right after a restart; another one is not."""
        transactional = transactional or producer in self.open
        epoch, sequence = self.sequences.get(producer, (0, 0))
        batch = keyed(pairs, producer, epoch, sequence + gap, transactional=transactional)
        info = send(self.log, batch)
        if gap and producer in self.sequences:
            assert info.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            return
        assert (info.error, info.base_offset, info.duplicate) == (ErrorCode.NONE, self.end, False)
        transaction = 0
        if transactional:
            if producer not in self.open:
                self.open[producer] = len(self.outcomes) + 1, self.end
                self.outcomes[len(self.outcomes) + 1] = None
            transaction = self.open[producer][0]
        self.sequences[producer] = epoch, sequence + gap + len(pairs)
        self.windows[producer] = self.end, sequence + gap, pairs, transactional
        self._took(pairs, transaction)

    @rule(producer=st.sampled_from(PRODUCERS))
    def repeat(self, producer: int) -> None:
        """P3 over L6: the last batch of a live producer is known, whatever compaction took of its records."""
        if producer not in self.windows:
            return
        offset, sequence, pairs, transactional = self.windows[producer]
        epoch = self.sequences[producer][0]
        info = send(self.log, keyed(pairs, producer, epoch, sequence, transactional=transactional))
        assert (info.error, info.duplicate, info.base_offset) == (ErrorCode.NONE, True, offset)

    @rule(producer=st.sampled_from(PRODUCERS), commit=st.booleans(), version=st.sampled_from([1, 2]))
    def decide(self, producer: int, commit: bool, version: int) -> None:
        if producer not in self.open:
            return
        epoch, _ = self.sequences[producer]
        info = self.log.append_marker(producer, epoch + (version == 2), commit, 0, version, self.now_ms)
        assert (info.error, info.base_offset) == (ErrorCode.NONE, self.end)
        if version == 2:
            self.sequences[producer] = epoch + 1, 0
            self.windows.pop(producer, None)
        transaction, _ = self.open.pop(producer)
        self.outcomes[transaction] = commit
        self.decided_at[transaction] = self.end
        self.end += 1
        self._settled()

    # Compaction

    @precondition(lambda self: self.steps is None)
    @rule()
    def begin_compaction(self) -> None:
        self.cleaning, self.steps = begin(self.log, self.cleaned_to, self.now_ms, self.limits)
        self.answer: object = None

    @precondition(lambda self: self.steps is not None)
    @rule(count=st.sampled_from([1, 2, 3, 5, 1000]))
    def go_on(self, count: int) -> None:
        for _ in range(count):
            if self.steps is None:
                return
            self._step(self.steps)

    def _step(self, steps: Steps) -> None:
        try:
            work = steps.send(self.answer)
        except StopIteration:
            self.cleaned_to = self.cleaning.cleaned_to
            self.steps = None
        except CleaningInterrupted:
            self.steps = None
        else:
            self.answer = work.run() if isinstance(work, Offload) else None

    def _abandon(self) -> None:
        if self.steps is not None:
            self.steps.close()
            self.steps = None

    @rule()
    def roll(self) -> None:
        if segments_of(self.log).active.size_bytes:
            self.log.roll(self.now_ms)

    @rule(hours=st.sampled_from([0.5, 2]))
    def wait(self, hours: float) -> None:
        self.now_ms += int(hours * HOUR_MS)

    # Life

    @rule()
    def sync(self) -> None:
        settle(self.log)
        self.high = self.end

    @rule(back=st.integers(0, 12))
    def delete_records(self, back: int) -> None:
        offset = max(0, self.high - back)
        code, start = delete_records(self.log, offset)
        self.start = max(self.start, offset)
        assert (code, start) == (ErrorCode.NONE, self.start)

    @rule()
    def checkpoint(self) -> None:
        for target in self.log.checkpoint():
            target.sync()
        self.directory.write_checkpoints()

    @rule()
    def close_and_open(self) -> None:
        """A stop in order leaves an interrupted swap to the next start."""
        store = self.store
        if self.steps is not None:
            store = crashed(store)
            self._abandon()
            self.store = store
        else:
            self.directory.close()
        self._open()

    @rule(snapshots=st.sampled_from(["all", "all", "start"]))
    def crash(self, snapshots: str) -> None:
        """Kill -9; `start`: only the snapshot at the log's start is left, and there is no recovery point."""
        store = crashed(self.store)
        self._abandon()
        if snapshots == "start":
            child = store.child(str(TP))
            first = segments_of(self.log).first_offset
            for name in child.sizes():
                if name.endswith(".snapshot") and int(name.partition(".")[0]) > first:
                    child.remove(name)
        self.store = store
        self._open()

    # Truth

    def _visible(self) -> Iterator[tuple[int, Pair]]:
        for offset, (pair, transaction) in self.records.items():
            if self.start <= offset < self._stable() and (not transaction or self.outcomes[transaction]):
                yield offset, pair

    def _stable(self) -> int:
        firsts: dict[int, int] = {}
        for offset, (_, transaction) in self.records.items():
            firsts.setdefault(transaction, offset)
        unstable = [first for _, first in self.open.values()]
        unstable += [firsts[txn] for txn, marker in self.decided_at.items() if marker >= self.high and txn in firsts]
        return max(self.start, min([self.high, *unstable]))

    @invariant()
    def bounds(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (self.start, self.end, self.high)
        assert log.last_stable_offset == self._stable()
        assert [(t.producer_id, t.first_offset) for t in log.producers.open_transactions()] == sorted(
            ((producer, first) for producer, (_, first) in self.open.items()), key=lambda entry: entry[1]
        )

    @invariant()
    def readers_build_the_same_table(self) -> None:
        expected: dict[str, str] = {}
        visible = dict(self._visible())
        for key, value in visible.values():
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
        assert seen(self.log) == expected
        for header, records in batches(self.log, COMMITTED):
            for record in records if not header.is_control else ():
                key, value = visible[record.offset]
                assert (record.key, record.value) == (key.encode(), None if value is None else value.encode())


TestCompactionModel = CompactionMachine.TestCase
TestCompactionModel.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
