"""What compaction keeps and drops of plain keyed records, and where it may work (row L4, KIP-58, KIP-354)."""

from dataclasses import replace

import pytest

from fencepost.broker.log.compaction.cleanable import MAX_RELATIVE_OFFSET, grouped, must_roll
from fencepost.broker.log.compaction.cleaning import CleaningLimits
from fencepost.broker.log.compaction.offset_map import NOT_FOUND, SLOT_BYTES, OffsetMap
from fencepost.broker.log.reading import max_timestamp_offset, offset_for_timestamp, read_batches, readable_bytes
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.batch_header import check_crc, iter_headers
from fencepost.protocol.compression import Compression
from fencepost.protocol.record_batch import build_batch
from tests.kit.trimming import delete_records, housekeep
from tests.unit.log.compaction_kit import (
    COMPACT,
    HOUR_MS,
    batches,
    begin,
    clean,
    keyed,
    put,
    range_of,
    records,
    seen,
    segments_of,
    spans,
    transact,
)
from tests.unit.log.kit import NOW_MS, UNCOMMITTED, crashed, end, headers, joined, log_file, over, send, settle


def test_the_last_record_of_each_key_survives_at_its_offset() -> None:
    """L4: a reader from the start builds the same table as before; offsets never change."""
    log = over(MemoryStore(), COMPACT)
    for number in range(60):
        put(log, (f"k{number % 4}", f"v{number}"))
    before = seen(log)
    clean(log)
    assert seen(log) == before
    assert records(log) == [(56, "k0", "v56"), (57, "k1", "v57"), (58, "k2", "v58"), (59, "k3", "v59")]


def test_surviving_records_keep_batch_timestamps_headers_and_codec() -> None:
    """L4: a batch that loses records keeps its span, its codec and all that stays in it; its CRC is redone."""
    for codec in Compression:
        log = over(MemoryStore(), COMPACT)
        big = "x" * 20_000 if codec else "x"
        info = send(
            log, keyed([("a", "1"), ("b", big), ("c", "3"), ("b", "2")], timestamp_ms=NOW_MS, compression=codec)
        )
        put(log, ("c", "4"), timestamp_ms=NOW_MS + 5)
        clean(log)
        header, kept = batches(log)[0]
        assert (header.base_offset, header.last_offset, header.record_count) == (info.base_offset, 3, 2)
        assert header.compression is codec
        assert [(r.offset, r.key, r.value, r.timestamp_ms) for r in kept] == [
            (0, b"a", b"1", NOW_MS),
            (3, b"b", b"2", NOW_MS),
        ]
        data = joined(read_batches(log, 0, 1 << 20, UNCOMMITTED).parts)
        assert all(check_crc(data, at, header) for at, header in iter_headers(data))


def test_fetching_inside_a_gap_gives_the_next_batch() -> None:
    """L4, as clients rely on it: an offset that was compacted away is in range and reads on behind the gap."""
    log = over(MemoryStore(), COMPACT)
    for number in range(40):
        put(log, ("k", f"v{number}"))
    clean(log)
    put(log, ("other", "v"))
    for offset in range(40):
        result = read_batches(log, offset, 1, UNCOMMITTED)
        assert not result.error
        first = next(header for _, header in iter_headers(joined(result.parts)))
        assert first.last_offset >= offset
        assert first.base_offset == min(base for base, (last, _) in spans(log).items() if last >= offset)
        assert readable_bytes(log, offset, UNCOMMITTED) > 0


def test_the_batch_before_the_end_of_what_was_compacted_stays_though_empty() -> None:
    """L6: otherwise nobody could see where the next offset is, after a restart or at the high watermark."""
    store = MemoryStore()
    log = over(store, COMPACT)
    put(log, ("k", "old"))
    put(log, ("k", "new"))
    put(log, ("k", None))
    clean(log)
    clean(log, now_ms=NOW_MS + 2 * HOUR_MS)
    assert records(log) == []
    assert [(h.base_offset, h.record_count) for h in headers(log)] == [(2, 0)]
    again = over(crashed(store), COMPACT)
    assert (again.log_end_offset, again.high_watermark) == (3, 3)


def test_tombstones_outlive_the_first_compaction_by_delete_retention() -> None:
    """L4, KIP-534: the first pass that meets a tombstone sets the batch's delete horizon, one after it drops it."""
    log = over(MemoryStore(), COMPACT)
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None), ("c", "1"), timestamp_ms=NOW_MS - 7)
    clean(log)
    header, kept = batches(log)[1]
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + HOUR_MS
    assert [(r.key, r.value, r.timestamp_ms) for r in kept] == [(b"a", None, NOW_MS - 7), (b"c", b"1", NOW_MS - 7)]
    assert header.max_timestamp == NOW_MS - 7
    clean(log, now_ms=NOW_MS + HOUR_MS - 1)
    assert records(log) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    assert batches(log)[1][0].base_timestamp == NOW_MS + HOUR_MS, "a horizon is set once"
    clean(log, now_ms=NOW_MS + HOUR_MS)
    assert records(log) == [(1, "b", "1"), (3, "c", "1")]


def test_records_without_a_key_go() -> None:
    """L9's other side: what was written before the topic was compacted has no key and cannot be kept by it."""
    store = MemoryStore()
    log = over(store, replace(COMPACT, cleanup_policy=frozenset({"delete"})))
    log.config = COMPACT
    info = send(log, keyed([("a", "1")]))
    log.config = replace(COMPACT, cleanup_policy=frozenset({"delete"}))
    send(log, build_batch([(NOW_MS, None, b"no key", ()), (NOW_MS, b"b", b"1", ())]))
    log.config = COMPACT
    assert clean(log).stats.keyless == 1
    assert records(log) == [(info.base_offset, "a", "1"), (2, "b", "1")]


def test_nothing_at_or_above_the_last_stable_offset_is_touched() -> None:
    """L4: an open transaction holds compaction back at its segment; so does the high watermark."""
    log = over(MemoryStore(), replace(COMPACT, segment_bytes=200))
    for number in range(6):
        put(log, ("k", f"v{number}"))
    first = transact(log, 1, 0, 0, ("k", "open"))
    for number in range(6):
        put(log, ("k", f"w{number}"))
    log.roll(NOW_MS)
    bound = range_of(log).upper_offset
    assert bound <= first
    clean(log)
    assert [offset for offset, _, _ in records(log) if offset >= bound] == list(range(bound, log.log_end_offset))
    durable = over(MemoryStore(), replace(COMPACT, segment_bytes=200), "fsync")
    for number in range(6):
        put(durable, ("k", f"v{number}"))
    assert range_of(durable).dirty_bytes == 0, "nothing is below the high watermark yet"
    settle(durable)
    assert range_of(durable).dirty_bytes > 0


def test_the_active_segment_and_young_segments_are_left_alone() -> None:
    """L4: min.compaction.lag.ms keeps a segment with a younger record, and all after it."""
    log = over(MemoryStore(), replace(COMPACT, segment_bytes=200))
    for number in range(12):
        put(log, ("k", f"v{number}"), timestamp_ms=NOW_MS - 1000 + 100 * number)
    active = segments_of(log).active.base_offset
    assert range_of(log).upper_offset == active
    log.config = replace(log.config, min_compaction_lag_ms=500)
    lagging = range_of(log)
    young = [s for s in segments_of(log) if s.max_timestamp_ms > NOW_MS - 500]
    assert lagging.upper_offset == young[0].base_offset < active


def test_the_dirty_ratio_decides_and_the_longest_lag_forces() -> None:
    """L4, KIP-354: min.cleanable.dirty.ratio is passed, or a dirty record is older than max.compaction.lag.ms."""
    log = over(MemoryStore(), replace(COMPACT, segment_bytes=300))
    for number in range(40):
        put(log, (f"k{number}", "v"))
    first = clean(log)
    assert first.cleaned_to == log.log_end_offset
    for number in range(8):
        put(log, (f"k{number}", "w"))
    log.roll(NOW_MS)
    range_ = range_of(log, first.cleaned_to)
    assert 0 < range_.dirty_ratio < 0.5
    assert not range_.is_due(log.config)
    assert range_.is_due(replace(log.config, min_cleanable_dirty_ratio=0.1))
    log.config = replace(log.config, max_compaction_lag_ms=1000)
    assert not range_of(log, first.cleaned_to, NOW_MS + 1000).is_due(log.config)
    late = range_of(log, first.cleaned_to, NOW_MS + 1500)
    assert late.is_due(log.config)
    assert late.delay_ms == 500


def test_an_active_segment_with_an_overdue_record_must_roll() -> None:
    """KIP-354: the active segment is never compacted, so one that is too old has to be closed."""
    log = over(MemoryStore(), replace(COMPACT, max_compaction_lag_ms=1000))
    assert not must_roll(segments_of(log), log.config, NOW_MS)
    put(log, ("k", "v"))
    assert not must_roll(segments_of(log), log.config, NOW_MS + 1000)
    assert must_roll(segments_of(log), log.config, NOW_MS + 1001)
    assert not must_roll(segments_of(log), COMPACT, NOW_MS + 1001)


def test_a_checkpoint_outside_the_log_begins_anew() -> None:
    """L4: a first dirty offset below the log's start or beyond its end says nothing of this log."""
    log = over(MemoryStore(), replace(COMPACT, segment_bytes=200))
    for number in range(12):
        put(log, ("k", f"v{number}"))
    assert range_of(log, 10_000).first_dirty_offset == 0
    delete_records(log, 5)
    assert range_of(log, 3).first_dirty_offset == 5


def test_small_segments_are_merged_within_the_bounds_of_one() -> None:
    """L4: groups are bounded by segment.bytes, by index size and by offsets relative to the base."""
    log = over(MemoryStore(), replace(COMPACT, segment_bytes=300))
    for number in range(60):
        put(log, ("k", f"v{number}"))
    clean(log)
    many = len(segments_of(log))
    clean(log, cleaned_to=log.log_end_offset - 1)
    assert len(segments_of(log)) < many
    assert records(log) == [(59, "k", "v59")]
    sealed = list(segments_of(log))[:-1]
    assert len(grouped(sealed, log.config)) == 1
    sealed[-1].next_offset = sealed[0].base_offset + MAX_RELATIVE_OFFSET + 2
    assert len(grouped(sealed, log.config)) == min(2, len(sealed))


def test_a_full_map_takes_several_passes_and_always_comes_on() -> None:
    """L4, bounded memory: with room for one key only, each pass moves the first dirty offset, up to the end."""
    log = over(MemoryStore(), COMPACT)
    for number in range(12):
        put(log, (f"k{number % 3}", f"v{number}"), (f"l{number % 2}", f"w{number}"))
    before = seen(log)
    log.roll(NOW_MS)
    cleaned_to, passes = 0, 0
    while cleaned_to < log.log_end_offset:
        cleaning = clean(log, cleaned_to, limits=CleaningLimits(2 * SLOT_BYTES), roll=False)
        assert cleaning.cleaned_to > cleaned_to
        cleaned_to, passes = cleaning.cleaned_to, passes + 1
        assert seen(log) == before
    assert passes > 5
    assert len(records(log)) == 5


def test_a_batch_larger_than_a_chunk_is_compacted() -> None:
    """L4: the chunk that is read at once bounds memory, not what can be compacted."""
    log = over(MemoryStore(), replace(COMPACT, segment_bytes=1 << 20))
    value = "x" * 1000
    for turn in range(2):
        send(log, keyed([(f"k{number}", f"{value}{turn}") for number in range(200)]))
    send(log, keyed([("k0", "new")]))
    clean(log)
    assert [offset for offset, _, _ in records(log)] == [*range(201, 400), 400]


def test_damaged_bytes_are_not_given_a_new_checksum() -> None:
    """L4: copying a batch whose CRC does not match would hide the damage; the compaction ends, the log stays."""
    store = MemoryStore()
    log = over(store, COMPACT)
    for number in range(5):
        put(log, ("k", f"v{number}"))
    log_file(store).data[70] ^= 1
    log.roll(NOW_MS)
    size = log.segments.size_bytes
    _, steps = begin(log)
    with pytest.raises(CorruptLogFile, match="CRC-32C"):
        list(steps)
    assert log.segments.size_bytes == size
    assert not [name for name in store.child("events-0").sizes() if name.endswith(".cleaned")]


def test_compact_alone_never_deletes_by_time_or_size() -> None:
    """L3, L4: retention.ms and retention.bytes are for cleanup.policy=delete; both policies together do both."""
    log = over(MemoryStore(), replace(COMPACT, segment_bytes=200, retention_ms=1, retention_bytes=1))
    for number in range(12):
        put(log, (f"k{number}", "v"))
    housekeep(log, NOW_MS + 24 * HOUR_MS)
    assert (log.log_start_offset, len(seen(log))) == (0, 12)
    log.config = replace(log.config, cleanup_policy=frozenset({"compact", "delete"}))
    clean(log)
    housekeep(log, NOW_MS + 24 * HOUR_MS)
    assert log.log_start_offset == log.log_end_offset == 12


def test_the_latest_record_is_found_where_its_batch_was_emptied() -> None:
    """KIP-734 over L6: an empty batch keeps its timestamp for its producer, but there is no record of that time."""
    log = over(MemoryStore(), COMPACT)
    put(log, ("a", "1"), timestamp_ms=NOW_MS - 5)
    send(log, keyed([("b", "1")], 9, 0, 0, timestamp_ms=NOW_MS))
    put(log, ("b", "2"), timestamp_ms=NOW_MS - 3)
    clean(log)
    assert spans(log)[1] == (1, 0)
    found = max_timestamp_offset(log)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (NOW_MS - 3, 2)
    earliest = offset_for_timestamp(log, NOW_MS - 4, UNCOMMITTED)
    assert earliest is not None
    assert earliest.offset == 2


def test_the_offset_map_holds_the_last_offset_of_each_key_in_fixed_memory() -> None:
    """L4: full is full, an update of a known key always fits, and unknown keys are not found."""
    offsets = OffsetMap(8, 0.5)
    assert [offsets.put(str(number).encode(), number) for number in range(5)] == [True] * 4 + [False]
    assert offsets.put(b"1", 77)
    assert [offsets.get(str(number).encode()) for number in range(5)] == [0, 77, 2, 3, NOT_FOUND]
    assert (len(offsets), offsets.utilization) == (4, 0.5)
    offsets.close()


def test_a_transaction_decided_above_the_compacted_part_stays_decided() -> None:
    """L5: the data is below, the marker above; committed data stays and is read once the marker is."""
    log = over(MemoryStore(), COMPACT)
    transact(log, 1, 0, 0, ("k", "committed"))
    log.roll(NOW_MS)
    end(log, 1, 0, commit=True)
    clean(log, roll=False)
    assert seen(log) == {"k": "committed"}


def test_a_compacted_segment_that_is_cut_keeps_its_gaps_over_the_next_crash() -> None:
    """L2 over L4: damage above the recovery point ends the log within a compacted segment; another crash before the
    next checkpoint must not take the gaps in what is left for damage, too.
    """
    store = MemoryStore()
    log = over(store, replace(COMPACT, segment_bytes=1000))
    for number in range(40):
        put(log, (f"k{number % 3}", f"v{number}"))
        put(log, (f"only{number}", "x"))
    clean(log)
    put(log, ("k0", "last"))
    before = records(log)
    first = log_file(store, number=0)
    assert len(segments_of(log)) > 3
    first.data[-1] ^= 1
    after = crashed(store)
    once = over(after, log.config)
    left = records(once)
    assert 1 < len(left) < len(before)
    assert spans(once).keys() != set(range(once.log_end_offset)), "there are gaps"
    again = over(crashed(after), log.config)
    assert records(again) == left
    assert again.log_end_offset == once.log_end_offset
