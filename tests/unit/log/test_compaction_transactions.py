"""What compaction keeps and drops of transactions and producers (rows L5 and L6, KIP-534)."""

from dataclasses import replace

from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.recovery.opening import Recovered, recover
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import Store
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.control_records import ControlType, read_marker
from fencepost.protocol.errors import ErrorCode
from tests.kit.trimming import delete_records
from tests.unit.log.compaction_kit import (
    COMPACT,
    HOUR_MS,
    batches,
    clean,
    keyed,
    put,
    records,
    seen,
    segments_of,
    spans,
    transact,
)
from tests.unit.log.kit import COMMITTED, NOW_MS, UNCOMMITTED, crashed, end, headers, joined, over, send

LATER_MS = NOW_MS + 2 * HOUR_MS


def markers(log: PartitionLog) -> list[int]:
    """The offsets of the markers that still say something."""
    return [header.base_offset for header in headers(log) if header.is_control and header.record_count]


def entries(log: PartitionLog) -> list[tuple[int, int, int]]:
    """(producer, first offset, last offset) of the aborted transactions in the indexes."""
    return [entry[:3] for segment in segments_of(log) for entry in segment.aborted.all()]


def forgotten(log: PartitionLog) -> None:
    """The producers have been idle for long."""
    log.producers.expire(NOW_MS + 1000 * HOUR_MS, 1)


def test_aborted_data_goes_at_once_and_never_hides_what_it_did_not_replace() -> None:
    """L5: an aborted write of a key leaves the committed one before it as the last."""
    log = over(MemoryStore(), COMPACT)
    put(log, ("a", "kept"))
    transact(log, 1, 0, 0, ("a", "aborted"), ("b", "aborted"))
    end(log, 1, 0, commit=False)
    put(log, ("c", "kept"))
    forgotten(log)
    clean(log)
    assert records(log) == [(0, "a", "kept"), (4, "c", "kept")]
    assert seen(log) == {"a": "kept", "c": "kept"}


def test_an_abort_marker_goes_after_its_data_and_the_delete_horizon() -> None:
    """KIP-534: one pass drops the data, the next sets the marker's horizon, one after the horizon drops the marker."""
    log = over(MemoryStore(), COMPACT)
    transact(log, 1, 0, 0, ("a", "aborted"))
    end(log, 1, 0, commit=False)
    put(log, ("c", "kept"))
    forgotten(log)
    clean(log)
    assert (markers(log), entries(log)) == ([1], [(1, 0, 1)])
    assert not batches(log)[0][0].has_delete_horizon
    clean(log)
    assert (markers(log), entries(log)) == ([1], [])
    marker = batches(log)[0][0]
    assert (marker.has_delete_horizon, marker.base_timestamp) == (True, NOW_MS + HOUR_MS)
    data = joined(read_batches(log, 0, 1 << 20, UNCOMMITTED).parts)
    assert read_marker(data, 0, marker).type is ControlType.ABORT
    clean(log, now_ms=NOW_MS + HOUR_MS - 1)
    assert markers(log) == [1]
    clean(log, now_ms=NOW_MS + HOUR_MS)
    assert markers(log) == []


def test_a_commit_marker_stays_as_long_as_a_record_of_its_transaction_does() -> None:
    """L5: without the marker the surviving record would hang in an open transaction after a replay."""
    store = MemoryStore()
    log = over(store, COMPACT)
    transact(log, 1, 0, 0, ("a", "1"), ("b", "1"))
    end(log, 1, 0, commit=True)
    put(log, ("a", "2"))
    forgotten(log)
    for _ in range(3):
        clean(log, now_ms=LATER_MS)
    assert records(log) == [(1, "b", "1"), (3, "a", "2")]
    assert markers(log) == [2]
    put(log, ("b", "2"))
    for hours in range(3):
        clean(log, now_ms=LATER_MS + hours * HOUR_MS)
    assert (records(log), markers(log)) == ([(3, "a", "2"), (4, "b", "2")], [])
    assert over(crashed(store), COMPACT).last_stable_offset == 5


def test_a_marker_in_a_later_group_is_not_discarded_while_data_stands_in_an_earlier_one() -> None:
    """KAFKA-8351: what is known of transactions is carried from one group of segments to the next.

    The abort marker has no data left. It stays because the snapshot at the beginning of a segment between, from which a
    restart may have to replay once retention comes there, has its transaction open.
    """
    store = MemoryStore()
    log = over(store, replace(COMPACT, segment_bytes=120))
    transact(log, 1, 0, 0, ("a", "1"))
    transact(log, 2, 0, 0, ("b", "1"))
    for number in range(8):
        put(log, (f"filler{number}", "v"))
    end(log, 1, 0, commit=True)
    end(log, 2, 0, commit=False)
    put(log, ("z", "v"))
    forgotten(log)
    for hours in range(4):
        clean(log, now_ms=NOW_MS + 2 * hours * HOUR_MS)
    assert len(segments_of(log)) > 2
    assert markers(log) == [10, 11]
    assert records(log)[0] == (0, "a", "1")
    for snapshot in sorted(name for name in store.child("events-0").sizes() if name.endswith(".snapshot")):
        offset = int(snapshot.partition(".")[0])
        again = PartitionLog(log.tp, log.topic_id, log.config, *replayed_from(store, offset))
        assert (again.last_stable_offset, list(again.producers.open_transactions())) == (13, [])


def test_the_last_batch_of_a_live_producer_stays_though_empty() -> None:
    """L6: its sequence is where the producer's next batch must begin, also after a restart without a snapshot."""
    store = MemoryStore()
    log = over(store, COMPACT)
    send(log, keyed([("a", "1")], 7, 0, 0))
    send(log, keyed([("a", "2"), ("b", "2")], 7, 0, 1))
    put(log, ("a", "3"), ("b", "3"))
    clean(log)
    assert spans(log) == {1: (2, 0), 3: (4, 2)}
    again = without_snapshots(store)
    repeated = send(again, keyed([("a", "2"), ("b", "2")], 7, 0, 1))
    assert (repeated.duplicate, repeated.base_offset) == (True, 1)
    assert send(again, keyed([("c", "1")], 7, 0, 4)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(again, keyed([("c", "1")], 7, 0, 3)).error
    forgotten(log)
    put(log, ("d", "1"))
    clean(log)
    assert 1 not in spans(log)


def test_the_last_marker_of_a_producer_without_data_stays() -> None:
    """L6: it carries the epoch that fences the producer's former self (T9)."""
    store = MemoryStore()
    log = over(store, COMPACT)
    transact(log, 5, 0, 0, ("a", "1"))
    end(log, 5, 1, commit=False, version=2)
    put(log, ("b", "1"))
    for hours in range(4):
        clean(log, now_ms=NOW_MS + 2 * hours * HOUR_MS)
    assert (records(log), markers(log)) == ([(2, "b", "1")], [1])
    again = without_snapshots(store)
    assert send(again, keyed([("a", "z")], 5, 0, 1, transactional=True)).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_aborted_batch_kept_empty_keeps_its_marker_and_its_entry() -> None:
    """L5 and L6 together: the empty batch is part of its transaction, which must not hang after a replay."""
    store = MemoryStore()
    log = over(store, COMPACT)
    transact(log, 1, 0, 0, ("a", "aborted"))
    end(log, 1, 0, commit=False)
    put(log, ("b", "1"))
    for hours in range(3):
        clean(log, now_ms=NOW_MS + 2 * hours * HOUR_MS)
    assert spans(log) == {0: (0, 0), 1: (1, 1), 2: (2, 1)}
    assert entries(log) == [(1, 0, 1)]
    assert read_batches(log, 0, 1 << 20, COMMITTED).aborted == [(1, 0)]
    again = without_snapshots(store)
    assert (again.last_stable_offset, list(again.producers.open_transactions())) == (3, [])


def test_a_marker_stays_while_the_snapshot_at_the_log_start_has_its_transaction_open() -> None:
    """L3 with L5: retention took the data; replay begins at a snapshot that waits for the marker."""
    store = MemoryStore()
    log = over(store, replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"})))
    transact(log, 1, 0, 0, ("a", "1"))
    log.roll(NOW_MS)
    put(log, ("b", "1"))
    end(log, 1, 0, commit=True)
    put(log, ("c", "1"))
    delete_records(log, 1)
    assert segments_of(log).first_offset == 1
    forgotten(log)
    for hours in range(4):
        clean(log, now_ms=NOW_MS + 2 * hours * HOUR_MS)
    assert markers(log) == [2]
    for name in store.child("events-0").sizes():
        if name.endswith(".snapshot") and not name.startswith(f"{1:020d}"):
            store.child("events-0").remove(name)
    store.remove("recovery-point-offset-checkpoint")
    again = over(crashed(store), COMPACT)
    assert (again.last_stable_offset, list(again.producers.open_transactions())) == (4, [])


def test_snapshots_within_a_compacted_segment_are_deleted_before_it_counts() -> None:
    """L5: such a snapshot may have a transaction open whose marker is gone; those at segment bases keep theirs."""
    store = MemoryStore()
    log = over(store, COMPACT)
    for number in range(6):
        put(log, (f"k{number}", "v"))
        log.roll(NOW_MS)
    clean(log, roll=False)
    names = [name for name in sorted(store.child("events-0").sizes()) if name.endswith(".snapshot")]
    assert names == [f"{6:020d}.snapshot"]


def test_aborted_lists_are_right_when_only_some_transactions_were_compacted() -> None:
    """I2 over L5: a reader gets every aborted transaction that still has data, and nothing aborted is ever seen."""
    log = over(MemoryStore(), replace(COMPACT, segment_bytes=300))
    for turn in range(12):
        transact(log, turn % 3, 0, turn // 3, (f"a{turn}", "aborted"))
        put(log, (f"k{turn % 4}", f"v{turn}"))
        end(log, turn % 3, 0, commit=False)
    clean(log, roll=False)
    expected = {f"k{number}": f"v{number + 8}" for number in range(4)}
    assert seen(log) == expected
    for offset in range(log.log_end_offset):
        result = read_batches(log, offset, 400, COMMITTED)
        got = [header for _, header in iter_headers(joined(result.parts))]
        data = {h.producer_id for h in got if h.is_transactional and not h.is_control and h.record_count}
        assert data <= {producer_id for producer_id, _ in result.aborted or ()}


def without_snapshots(store: MemoryStore) -> PartitionLog:
    """The log as it is opened when every snapshot is lost."""
    copy = crashed(store)
    for name in copy.child("events-0").sizes():
        if name.endswith(".snapshot"):
            copy.child("events-0").remove(name)
    return over(copy, COMPACT)


def replayed_from(store: MemoryStore, offset: int) -> tuple[Store, Recovered]:
    """The log as it is recovered when the snapshot at `offset` is the newest that is left."""
    child = crashed(store).child("events-0")
    for name in child.sizes():
        if name.endswith(".snapshot") and int(name.partition(".")[0]) > offset:
            child.remove(name)
    return child, recover(child, COMPACT, 0, offset)
