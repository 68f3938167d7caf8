"""Merges: readers see the same bytes, the next broker the same state, and few rows stay."""

import random
from collections.abc import Callable

import pytest

from fencepost.broker.cluster.commit.dropping import raise_starts
from fencepost.broker.cluster.engine import Placement, Row, RowKind, StoreUnavailable
from fencepost.broker.cluster.growth.merging import MergeLimits, due_merge, merged
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.recovery.snapshots import encode_snapshot
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.topics import TopicPartition
from tests.kit.engine_worlds import World
from tests.kit.garbage import collect
from tests.kit.growing import Writers, aborted, content, growth_of, merge, opened
from tests.kit.shared_store import StoreBroker, Stores
from tests.kit.sim_engine import SimEngine
from tests.unit.log.kit import NOW_MS, batch

HOUR_MS = 60 * 60 * 1000
LIMITS = MergeLimits(segment_bytes=1 << 20, fan_in=5)


def rows_in(broker: StoreBroker, log: PartitionLog) -> list[Row]:
    return broker.engine.rows(log.segments.log_id, 0, 1 << 62, limit=10_000)


def write_rounds(broker: StoreBroker, log: PartitionLog, count: int, value: bytes = b"value") -> None:
    for _ in range(count):
        log.append(batch(2, value=value), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()


# Which rows


def run(base: int, size_bytes: int) -> Row:
    return Row(base, 1, RowKind.RUN, 0, Placement(0, 0, size_bytes), 0, 1, (), b"", b"")


@pytest.mark.parametrize("sizes", [[100], [100, 5000, 70_000], [600_000, 100], [1 << 19], [3 << 20, 10]])
def test_rows_stay_few_and_bytes_are_seldom_written_again(sizes: list[int]) -> None:
    """Beside the full rows a log has at most fan-in rows of each size; merges copy a byte once for each size."""
    rows: list[Row] = []
    folded_to = written = copied = 0
    random_ = random.Random(1)
    for number in range(3000):
        rows.append(run(number, size := random_.choice(sizes)))
        written += size
        while (due := due_merge(rows, folded_to, LIMITS)) is not None:
            assert due.rows == [row for row in rows if due.start <= row.base < due.end]
            copied += due.read_bytes
            new = []
            for group in due.groups:
                size_bytes = sum(row.placement.size_bytes for row in group)
                assert size_bytes <= LIMITS.segment_bytes or len(group) == 1
                new.append(merged(group, [], Placement(0, 0, size_bytes), None))
            at = rows.index(due.rows[0])
            rows[at : at + len(due.rows)] = new
            folded_to = max(folded_to, due.end) if due.folds else folded_to
    full = [row for row in rows if LIMITS.is_full(row)]
    assert len(rows) - len(full) <= 5 * 4 + len(full), [row.placement.size_bytes for row in rows]
    assert copied <= 6 * written, copied / written
    assert [row.base for row in rows[1:]] == [row.end for row in rows[:-1]]


def test_nothing_is_merged_over_the_barrier() -> None:
    rows = [merged([run(n, 10), run(n, 10)], [], Placement(0, 0, 10), None)._replace(base=n, count=1) for n in range(9)]
    assert due_merge(rows, 9, LIMITS, barrier=9) is not None
    assert due_merge(rows, 9, LIMITS, barrier=5).end == 5  # type: ignore[union-attr]
    assert due_merge(rows[:8], 8, LIMITS, barrier=4) is None


# What readers and the next broker see


@pytest.mark.parametrize(("inline_bytes", "seed"), [(0, 1), (400, 2), (1 << 14, 3)])
def test_merged_logs_are_the_same_for_readers_and_for_the_next_broker(
    world: World, inline_bytes: int, seed: int
) -> None:
    """Bytes, producers, open and aborted transactions, leader epochs: with merges in between as without any."""
    stores, random_ = Stores(world), random.Random(seed)
    writers, before = Writers(random_), b""
    for number in range(1, 5):
        broker = stores.broker(number, inline_bytes)
        log = opened(broker)
        assert content(broker, log) == before
        growth = growth_of(broker, log, cluster_segment_max_bytes=6000, cluster_inline_max_bytes=inline_bytes)
        for _ in range(40):
            for _ in range(random_.randint(1, 3)):
                writers.step(log)
            broker.round()
            if random_.random() < 0.1:
                merge(growth)
        merge(growth)
        before = content(broker, log)
        state = encode_snapshot(sorted(log.producers.entries())), log.last_stable_offset, aborted(log)
        epochs = [log.epochs.epoch_of(offset) for offset in range(log.high_watermark)]
        successor = stores.broker(100 + number, inline_bytes)
        again = opened(successor)
        assert content(successor, again) == before
        found = encode_snapshot(sorted(again.producers.entries())), again.last_stable_offset, aborted(again)
        assert found == state
        assert [again.epochs.epoch_of(offset) for offset in range(log.high_watermark)] == epochs
        writers_epochs = {header.partition_leader_epoch for _, header in iter_headers(before)}
        assert len(writers_epochs) == number
    assert growth.counters.merged_rows > 30
    assert len(rows_in(broker, log)) < 40


def test_many_logs_share_the_object_of_their_merge(world: World) -> None:
    stores = Stores(world)
    broker = stores.broker(1, 0)
    logs = [opened(broker, TopicPartition("orders", number), number.to_bytes(16, "big")) for number in range(20)]
    for _ in range(5):
        for log in logs:
            log.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    before = set(stores.objects)
    merge(growth_of(broker, *logs))
    assert len(set(stores.objects) - before) == 1
    assert [len(rows_in(broker, log)) for log in logs] == [1] * 20
    assert set(broker.engine.doomed(HOUR_MS)) == before, "nothing refers to the objects of the runs"
    successor = stores.broker(2)
    tp = TopicPartition("orders", 7)
    assert content(successor, opened(successor, tp, (7).to_bytes(16, "big"))) == content(broker, logs[7])


def test_large_runs_stay_where_they_are() -> None:
    stores = Stores()
    broker = stores.broker(1, 0)
    log = opened(broker)
    write_rounds(broker, log, 4, bytes(3000))
    puts = set(stores.objects)
    merge(growth_of(broker, log, cluster_segment_max_bytes=4000))
    found = rows_in(broker, log)
    assert [(row.kind, row.heads) for row in found] == [(RowKind.RUN, None)] * 4
    assert set(stores.objects) == puts
    again = stores.broker(2)
    assert content(again, opened(again)) == content(broker, log)


# What comes between


def racing(broker: StoreBroker, method: str, between: Callable[[], None]) -> None:
    """Call `between` once, before the next transaction of this name."""
    engine = broker.engine
    assert isinstance(engine, SimEngine)

    def before(name: str) -> None:
        if name == method:
            engine.before = lambda name: None
            between()

    engine.before = before


def test_commits_go_on_while_rows_are_merged() -> None:
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker)
    write_rounds(broker, log, 5)
    racing(broker, "replace", lambda: write_rounds(broker, log, 2))
    merge(growth_of(broker, log))
    assert [(row.base, row.count) for row in rows_in(broker, log)] == [(0, 10), (10, 2), (12, 2)]
    write_rounds(broker, log, 1)
    merge(growth_of(broker, log))
    assert [row.base for row in log.segments.index.rows] == [row.base for row in rows_in(broker, log)]


def test_rows_that_changed_meanwhile_are_read_again() -> None:
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker)
    write_rounds(broker, log, 5)
    starts = [(log.segments.log_id, 4)]
    racing(broker, "replace", lambda: raise_starts(broker.engine, broker.writer, starts))
    growth = growth_of(broker, log)
    merge(growth)
    assert [row.base for row in log.segments.index.rows] == [row.base for row in rows_in(broker, log)] == [4, 6, 8]
    merge(growth)
    assert [row.base for row in rows_in(broker, log)] == [4]


@pytest.mark.parametrize("happened", [False, True])
def test_the_rows_are_those_of_the_database_when_an_answer_is_lost(happened: bool) -> None:
    stores = Stores()
    broker = stores.broker(1, 0)
    log = opened(broker)
    write_rounds(broker, log, 5)
    engine = broker.engine
    assert isinstance(engine, SimEngine)

    def lost(method: str) -> None:
        if method == "replace":
            engine.before = engine.after = lambda method: None
            raise StoreUnavailable("the connection broke")

    if happened:
        engine.after = lost
    else:
        engine.before = lost
    growth = growth_of(broker, log)
    merge(growth)
    found = rows_in(broker, log)
    assert len(found) == (1 if happened else 5)
    assert [row.placement for row in log.segments.index.rows] == [row.placement for row in found]
    merge(growth)
    (row,) = rows_in(broker, log)
    stores.world.age(HOUR_MS)
    assert collect(engine, broker.row_bytes) == 5 + (not happened), "a claim of the first attempt"  # type: ignore[arg-type]
    assert set(stores.objects) == {row.placement.object_id}
    successor = stores.broker(2)
    assert content(successor, opened(successor)) == content(broker, log)


def test_a_broker_that_was_taken_over_merges_nothing() -> None:
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker)
    write_rounds(broker, log, 5)
    successor = stores.broker(2)
    racing(broker, "replace", lambda: setattr(broker.writer, "fenced", True))  # it learns that at its next commit
    merge(growth_of(broker, log))
    assert len(rows_in(broker, log)) == 5
    again = opened(successor)
    merge(growth_of(successor, again))
    assert len(rows_in(broker, log)) == 1
