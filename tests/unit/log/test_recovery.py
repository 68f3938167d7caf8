"""Opening a log after a crash: nothing whole is lost, nothing half is read (rows L2, P9, I1, I3)."""

import logging
import random
from itertools import pairwise

import pytest

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.reading import max_timestamp_offset, offset_for_timestamp, read_batches
from fencepost.broker.log.storage.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.segment import file_name
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.errors import ErrorCode
from tests.unit.log.kit import (
    COMMITTED,
    NOW_MS,
    TOPIC_ID,
    TP,
    UNCOMMITTED,
    batch,
    crashed,
    directory_over,
    end,
    headers,
    log_file,
    over,
    send,
    settle,
    transact,
)

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)


def lively(config=CONFIG):
    """A log with transactions committed, aborted and open, and what it looked like after each step."""
    store = MemoryStore()
    log = over(store, config)
    states = [picture(log)]
    steps = [
        lambda n: send(log, batch(2, 5, 0, 2 * n)),
        lambda n: transact(log, 7, 0, n),
        lambda n: send(log, batch(1)),
        lambda n: end(log, 7, 0, commit=n % 2 == 0),
        lambda n: transact(log, 8, n, 0, count=3),
        lambda n: end(log, 8, n + 1, commit=n % 3 == 0, version=2),
    ]
    for n in range(4):
        for step in steps:
            step(n)
            states.append(picture(log))
    transact(log, 9, 0, 0)
    states.append(picture(log))
    transact(log, 7, 0, 4)
    states.append(picture(log))
    send(log, batch(1, 5, 0, 8))
    states.append(picture(log))
    return store, log, states


def picture(log):
    """Everything that must be the same after a restart."""
    return {
        "end": log.log_end_offset,
        "lso": log.last_stable_offset,
        "producers": sorted(log.producers.entries()),
        "open": list(log.producers.open_transactions()),
        "aborted": read_batches(log, log.log_start_offset, 1 << 20, COMMITTED).aborted,
        "batches": headers(log),
        "committed": headers(log, COMMITTED),
    }


def test_kill_9_loses_nothing():
    store, log, states = lively()
    assert len(log.segments) > 2
    assert picture(over(crashed(store), CONFIG)) == states[-1] == picture(log)


def test_a_clean_restart_loses_nothing_and_scans_nothing():
    store, log, states = lively()
    directory = directory_over(store)
    again = directory.create(TP, TOPIC_ID, CONFIG)
    directory.close()
    directory = directory_over(store)
    assert directory.clean
    again = directory.create(TP, TOPIC_ID, CONFIG)
    assert picture(again) == states[-1]
    assert log.log_end_offset == again.log_end_offset


def test_a_crash_at_every_byte_of_the_last_three_batches_keeps_every_whole_batch():
    config = LogConfig(index_interval_bytes=150)
    store, log, states = lively(config)
    ends = positions_after_each_batch(log)
    for size in range(ends[-4], ends[-1] + 1):
        copy = crashed(store)
        del log_file(copy).data[size:]
        whole = max(n for n, at in enumerate(ends) if at <= size)
        again = over(copy, config)
        assert picture(again) == states[whole]
        assert log_file(copy).size_bytes == ends[whole], "the rest is cut off"
        assert send(again, batch()).base_offset == states[whole]["end"]


def positions_after_each_batch(log):
    ends = [0]
    for header in headers(log):
        ends.append(ends[-1] + header.size_bytes)
    return ends


def test_a_flipped_bit_anywhere_in_the_last_batch_ends_the_log_before_it():
    config = LogConfig(index_interval_bytes=150)
    store, log, states = lively(config)
    ends = positions_after_each_batch(log)
    covered = [at for at in range(ends[-2], ends[-1]) if not 12 <= at - ends[-2] < 16]
    for at in covered:  # bytes 12 to 15 hold the leader epoch, which no checksum covers
        copy = crashed(store)
        log_file(copy).data[at] ^= 0x40
        assert picture(over(copy, config)) == states[-2]


def test_a_flipped_leader_epoch_which_no_checksum_covers_changes_nothing_else():
    store, log, states = lively()
    position = log_file(store).size_bytes - headers(log)[-1].size_bytes
    log_file(store).data[position + 12] ^= 0x40
    again = over(crashed(store), CONFIG)
    assert picture(again)["producers"] == states[-1]["producers"]
    assert (again.leader_epoch, again.log_end_offset) == (0, log.log_end_offset)


def test_a_bad_batch_in_the_tail_takes_all_that_follows_with_it_and_says_where(caplog):
    config = LogConfig(index_interval_bytes=150)
    store, log, states = lively(config)
    ends = positions_after_each_batch(log)
    log_file(store).data[ends[-3] + 30] ^= 1
    with caplog.at_level(logging.WARNING):
        again = over(crashed(store), config)
    assert picture(again) == states[-3]
    (line,) = [record.getMessage() for record in caplog.records if "truncated" in record.getMessage()]
    assert file_name(0, ".log") in line
    assert f"byte {ends[-3]}, offset {states[-3]['end']}" in line


def test_segments_after_a_bad_batch_are_deleted_and_offsets_have_no_hole():
    store, log, _ = lively()
    log_file(store, number=0).data[100] ^= 1
    copy = crashed(store)
    again = over(copy, CONFIG)
    assert len(again.segments) == 1
    assert all(a.next_offset == b.base_offset for a, b in pairwise(headers(again)))
    assert log.log_end_offset > again.log_end_offset


def test_below_the_recovery_point_no_checksum_is_looked_at():
    store = MemoryStore()
    directory = directory_over(store, "fsync")
    log = directory.create(TP, TOPIC_ID, CONFIG)
    for _ in range(5):
        send(log, batch(4))
    settle(log)
    directory.write_checkpoints()
    send(log, batch())
    settle(log)
    log_file(store).data[80] ^= 1
    again = over(crashed(store), CONFIG, "fsync")
    assert again.log_end_offset == 21, "trusted: the reader's checksum finds it"


def test_indexes_and_time_indexes_lost_in_the_crash_are_made_again():
    store, log, states = lively()
    for suffix in (".index", ".timeindex", ".txnindex"):
        copy = crashed(store)
        files = copy.child(str(TP)).files
        for name in [name for name in files if name.endswith(suffix)]:
            del files[name]
        again = over(copy, CONFIG)
        assert picture(again) == states[-1]
        for old, new in zip(log.segments, again.segments, strict=True):
            assert list(new.offsets.entries()) == list(old.offsets.entries())


def test_a_repair_of_the_aborted_index_seals_no_wrong_other_index():
    """All indexes of a log that was closed in order are gone: the first start makes them again, the second has them."""
    store = MemoryStore()
    directory = directory_over(store)
    log = directory.create(TP, TOPIC_ID, CONFIG)
    for number in range(12):
        transact(log, 7, number, 0, 3)
        end(log, 7, number + 1, commit=number % 2 == 0, version=2)
    expected = [(list(segment.offsets.entries()), list(segment.times.entries())) for segment in log.segments][:-1]
    assert len(expected) > 2
    directory.close()
    files = store.child(str(TP)).files
    for name in [name for name in files if name.endswith((".index", ".timeindex", ".txnindex"))]:
        del files[name]
    over(store, CONFIG)
    again = over(crashed(store), CONFIG)
    found = offset_for_timestamp(again, NOW_MS, UNCOMMITTED)
    assert found is not None
    assert found.offset == 0
    for segment in list(again.segments)[:-1]:
        segment.offsets.position_before(0)  # the first search
    remade = [(list(segment.offsets.entries()), list(segment.times.entries())) for segment in again.segments][:-1]
    assert [offsets for offsets, _ in remade] == [offsets for offsets, _ in expected]
    assert all(times for _, times in remade)


@pytest.mark.parametrize("seed", range(20))
def test_garbage_in_the_active_segments_indexes_does_no_harm(seed):
    store, _, states = lively(LogConfig(index_interval_bytes=150))
    generator = random.Random(seed)
    over(store, LogConfig(index_interval_bytes=150)).checkpoint()
    copy = crashed(store)
    for suffix in (".index", ".timeindex"):
        file = log_file(copy, suffix)
        if generator.random() < 0.5:
            file.data += bytes(generator.randrange(1, 40))  # Kafka preallocates; a torn write leaves zeros, too
        else:
            file.data[generator.randrange(len(file.data))] ^= 1 << generator.randrange(8)
    assert picture(over(copy, LogConfig(index_interval_bytes=150))) == states[-1]


def test_a_broken_snapshot_is_passed_over_for_an_older_one(caplog):
    store, log, states = lively()
    directory = directory_over(store)
    directory.create(TP, TOPIC_ID, CONFIG)
    directory.close()
    log_file(store, ".snapshot").data[12] ^= 1
    again = over(store, CONFIG)
    assert picture(again) == states[-1]
    assert "snapshot deleted" in caplog.text
    assert log.log_end_offset == again.log_end_offset


def test_snapshots_beyond_the_recovered_end_are_deleted():
    store, log, _ = lively()
    log_file(store, number=0).data[100] ^= 1
    copy = crashed(store)
    again = over(copy, CONFIG)
    names = [name for name in copy.child(str(TP)).sizes() if name.endswith(".snapshot")]
    assert all(int(name[:20]) <= again.log_end_offset for name in names)
    assert len(names) < len([name for name in store.child(str(TP)).sizes() if name.endswith(".snapshot")])
    assert log.log_end_offset > again.log_end_offset


def test_a_snapshot_beyond_the_end_of_the_data_is_not_used():
    store, log, states = lively(LogConfig(index_interval_bytes=150))
    ends = positions_after_each_batch(log)
    directory = directory_over(store)
    directory.create(TP, TOPIC_ID, LogConfig(index_interval_bytes=150))
    directory.close()
    for size in (ends[-2], ends[-3], ends[-3] + 7):
        copy = crashed(store)
        del log_file(copy).data[size:]
        with pytest.raises(CorruptLogFile):
            over(copy, LogConfig(index_interval_bytes=150))  # closed in order: what is missing was acknowledged
        copy.remove(CLEAN_SHUTDOWN)
        copy.remove(RECOVERY_POINTS)
        whole = max(n for n, at in enumerate(ends) if at <= size)
        assert picture(over(copy, LogConfig(index_interval_bytes=150))) == states[whole]


def test_an_open_transaction_is_still_open_and_can_be_ended_after_a_crash():
    store = MemoryStore()
    transact(over(store), 7, 0, 0, count=2)
    log = over(crashed(store))
    assert log.producers.has_open(7, 0)
    assert (log.last_stable_offset, log.log_end_offset) == (0, 2)
    assert send(log, batch(1, 7, 0, 2, transactional=True)).error is ErrorCode.NONE
    end(log, 7, 1, commit=False, version=2)
    assert log.last_stable_offset == 4
    assert read_batches(log, 0, 1000, COMMITTED).aborted == [(7, 0)]


def test_a_checkpoint_within_a_segment_lets_the_scan_begin_there():
    store = MemoryStore()
    directory = directory_over(store, "fsync")
    log = directory.create(TP, TOPIC_ID, LogConfig(index_interval_bytes=150))
    for n in range(20):
        transact(log, 7, 0, n)
    end(log, 7, 0, commit=False)
    settle(log)
    log.checkpoint()
    directory.write_checkpoints()
    transact(log, 7, 0, 20)
    transact(log, 8, 0, 0)
    settle(log)
    again = over(crashed(store), LogConfig(index_interval_bytes=150), "fsync")
    assert picture(again) == picture(log)
    assert list(again.segments.active.offsets.entries())[:3] == list(log.segments.active.offsets.entries())[:3]
    assert send(again, batch(1, 7, 0, 18, transactional=True)).duplicate


def test_leftovers_of_a_crash_are_cleared_away():
    store, _, states = lively()
    files = store.child(str(TP))
    for name in ("00000000000000000003.log.deleted", "partition.metadata.tmp", "00000000000000099999.index"):
        files.replace(name, b"x")
    assert picture(over(store, CONFIG)) == states[-1]
    left = files.sizes()
    assert "partition.metadata.tmp" not in left
    assert "00000000000000099999.index" not in left
    assert "00000000000000000003.log.deleted" not in left


def test_log_append_time_and_timestamps_survive():
    config = LogConfig(index_interval_bytes=100)
    store = MemoryStore()
    log = over(store, config)
    for n in range(30):
        send(log, batch(timestamp_ms=NOW_MS + n))
    again = over(crashed(store), config)
    for n in range(30):
        assert offset_for_timestamp(again, NOW_MS + n, COMMITTED).offset == n
    assert max_timestamp_offset(again).offset == 29


def test_the_time_index_forgets_records_that_the_crash_took():
    config = LogConfig(index_interval_bytes=0)
    store = MemoryStore()
    log = over(store, config)
    for later_ms in (0, 1, 2, 500):
        send(log, batch(timestamp_ms=NOW_MS + later_ms))
    log.checkpoint()
    copy = crashed(store)
    del log_file(copy).data[-1:]
    again = over(copy, config)
    found = max_timestamp_offset(again)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (2, NOW_MS + 2)
    assert offset_for_timestamp(again, NOW_MS + 3, COMMITTED) is None
    send(again, batch(timestamp_ms=NOW_MS + 3))
    found = max_timestamp_offset(again)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (3, NOW_MS + 3)
