"""Compaction of rows in a cluster's database: the records that stay are those that stay in files (rows L4 to L6)."""

import random
from dataclasses import replace
from functools import partial

import pytest
import trio

from fencepost.broker.cluster.engine import Changed
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.recovery.snapshots import encode_snapshot
from fencepost.broker.log.storage.memory import MemoryStore
from tests.kit.engine_worlds import World
from tests.kit.growing import aborted, compact, content, growth_of, merge, opened
from tests.kit.shared_store import StoreBroker, Stores
from tests.kit.sim_engine import SimEngine
from tests.unit.cluster.table_kit import CONFIG, Tables
from tests.unit.log.compaction_kit import HOUR_MS, batches, clean, keyed, records, seen
from tests.unit.log.kit import COMMITTED, NOW_MS, over, settle


@pytest.mark.parametrize("seed", range(8))
def test_the_same_records_stay_as_in_files(world: World, seed: int) -> None:
    """After each of several compactions, also by the next broker: equal records, and equal tables for readers."""
    random_ = random.Random(seed)
    tables, stores = Tables(random_), Stores(world)
    files = over(MemoryStore(), CONFIG)
    broker = stores.broker(1, inline_bytes=random_.choice([0, 1 << 14]))
    log, now_ms, cleaned_to = opened(broker, config=CONFIG), NOW_MS, 0
    for number in range(4):
        for _ in range(25):
            tables.write(files, log)
            if random_.random() < 0.4:
                tables.end(files, log)
            broker.round()
        tables.end(files, log)
        broker.round()
        broker.round()
        settle(files)
        table = seen(files)
        cleaned_to = clean(files, cleaned_to, now_ms).cleaned_to
        compact(growth_of(broker, log, now_ms=partial(int, now_ms), cluster_merge_min_rows=2))
        assert seen(files) == table
        content(broker, log)  # what is missing arrives
        assert (seen(log), records(log)) == (table, records(files))
        assert len(records(log)) < 60
        now_ms += 2 * HOUR_MS if random_.random() < 0.7 else 0
        if random_.random() < 0.5:
            state, entries = encode_snapshot(sorted(log.producers.entries())), aborted(log)
            broker = stores.broker(2 + number)
            log = opened(broker, config=CONFIG)
            content(broker, log)
            assert (seen(log), records(log), aborted(log)) == (table, records(files), entries)
            assert encode_snapshot(sorted(log.producers.entries())) == state
            assert log.segments.cleaned_to == cleaned_to


def six_values(broker: StoreBroker) -> PartitionLog:
    """A log with the values 0 to 5 of the key `a`, each in a row of its own."""
    log = opened(broker, config=CONFIG)
    for number in range(6):
        log.append(keyed([("a", str(number))]), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    return log


def test_open_transactions_are_not_touched() -> None:
    """Rows from the one of the last stable offset on stay; after the abort the next compaction removes the records."""
    stores = Stores()
    broker = stores.broker(1)
    log = six_values(broker)
    growth = growth_of(broker, log, cluster_merge_min_rows=2)
    compact(growth)
    guard = log.verify(7, 0, 0, 1)
    log.append(keyed([("a", "open")], 7, 0, 0, transactional=True), AppendOrigin.CLIENT, NOW_MS, guard=guard)
    broker.round()
    log.append(keyed([("a", "after")]), AppendOrigin.COORDINATOR, NOW_MS)
    broker.round()
    compact(growth)
    content(broker, log)
    assert records(log) == [(5, "a", "5"), (6, "a", "open"), (7, "a", "after")]
    log.append_marker(7, 0, False, 0, 1, NOW_MS)
    broker.round()
    log.append(keyed([("b", "")]), AppendOrigin.COORDINATOR, NOW_MS)
    broker.round()
    compact(growth)
    content(broker, log)
    assert records(log) == [(7, "a", "after"), (8 + 1, "b", "")]
    assert seen(log) == {"a": "after", "b": ""}


def test_an_aborted_transaction_whose_marker_is_behind_the_compacted_rows_supersedes_nothing() -> None:
    """Row L5. A marker of another broker is a row of its own, so merging often ends just before one."""
    stores = Stores()
    broker = stores.broker(1)
    log = six_values(broker)
    guard = log.verify(7, 0, 0, 1)
    log.append(keyed([("a", "aborted")], 7, 0, 0, transactional=True), AppendOrigin.CLIENT, NOW_MS, guard=guard)
    broker.round()
    growth = growth_of(broker, log, cluster_merge_min_rows=2)
    merge(growth)
    log.append_marker(7, 0, False, 0, 1, NOW_MS)
    broker.round()
    trio.run(growth.compactions.compact)
    assert log.segments.cleaned_to == 7
    content(broker, log)
    assert records(log) == [(5, "a", "5")]
    assert seen(log) == {"a": "5"}


def test_readers_of_committed_records_never_see_aborted_ones_in_the_tail() -> None:
    """Their entries in the aborted index go with their records, but the tail still has the records."""
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker, config=CONFIG)
    for number in range(4):
        guard = log.verify(7, 0, number, 1)
        log.append(keyed([("a", "no")], 7, 0, number, transactional=True), AppendOrigin.CLIENT, NOW_MS, guard=guard)
        log.append_marker(7, 0, False, 0, 1, NOW_MS)
        broker.round()
    before = content(broker, log)
    growth = growth_of(broker, log, cluster_merge_min_rows=2)
    compact(growth)
    for _ in range(2):
        log.append(keyed([("b", "yes")]), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    compact(growth)
    assert len(aborted(log)) < 4
    assert len(content(broker, log)) < len(before)
    assert seen(log) == {"b": "yes"}
    assert all(not found for header, found in batches(log, COMMITTED) if header.producer_id == 7)


def test_a_log_that_changes_during_its_compaction_keeps_its_records() -> None:
    stores = Stores()
    broker = stores.broker(1)
    log = six_values(broker)
    growth = growth_of(broker, log, cluster_merge_min_rows=2, cluster_segment_max_bytes=1024)
    engine = broker.engine
    assert isinstance(engine, SimEngine)

    def changed(method: str) -> None:
        if method == "replace" and growth.compactions.busy is not None:
            engine.before = lambda method: None
            raise Changed("rows were dropped")

    engine.before = changed
    compact(growth)
    content(broker, log)
    assert len(records(log)) == 6
    compact(growth)
    content(broker, log)
    assert records(log) == [(5, "a", "5")]


def test_only_topics_with_that_policy_are_compacted_and_young_records_wait() -> None:
    stores = Stores()
    broker = stores.broker(1)
    deleting = opened(broker, config=LogConfig(retention_ms=-1))
    for number in range(4):
        deleting.append(keyed([("a", str(number))]), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    growth = growth_of(broker, deleting, cluster_merge_min_rows=2)
    compact(growth)
    assert len(records(deleting)) == 4
    deleting.config = replace(CONFIG, min_compaction_lag_ms=HOUR_MS)
    compact(growth)
    assert len(records(deleting)) == 4
    deleting.config = CONFIG
    compact(growth)
    content(broker, deleting)
    assert len(records(deleting)) == 1


def test_the_largest_lag_merges_the_newest_runs_to_compact_them() -> None:
    """KIP-354: as a segment of files is closed early."""
    stores = Stores()
    broker: StoreBroker = stores.broker(1)
    log = opened(broker, config=replace(CONFIG, max_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=1.0))
    for number in range(2):
        log.append(keyed([("a", str(number))]), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    compact(growth_of(broker, log, cluster_merge_min_rows=100))
    assert len(records(log)) == 2
    compact(growth_of(broker, log, cluster_merge_min_rows=100, now_ms=lambda: NOW_MS + 2 * HOUR_MS))
    content(broker, log)
    assert records(log) == [(1, "a", "1")]
