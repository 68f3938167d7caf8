"""The bytes on disk are Kafka's (rows I3, L1, P9, row 19 of section 0)."""

import struct

import crc32c
import pytest

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.producer_entries import BatchMetadata, ProducerEntry
from fencepost.broker.log.recovery.snapshots import decode_snapshot, encode_snapshot
from fencepost.broker.log.storage import checkpoints
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.segment import file_name, offset_in_name
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.topics import TopicPartition
from tests.unit.log.kit import (
    NOW_MS,
    TP,
    batch,
    directory_over,
    end,
    file_names,
    headers,
    log_file,
    over,
    send,
    transact,
)

ONE_BATCH = ProducerEntry(7, 3, 9, 1234, 40, (BatchMetadata(5, 42, 2, 1234),))
NO_BATCH = ProducerEntry(8, 1, 2, 99, -1, ())


def test_p9_snapshot_bytes_are_version_crc_count_and_46_bytes_per_producer():
    entries = struct.pack(">qhiqiqiq", 7, 3, 5, 42, 2, 1234, 9, 40)
    entries += struct.pack(">qhiqiqiq", 8, 1, -1, -1, 0, 99, 2, -1)
    body = struct.pack(">i", 2) + entries
    assert encode_snapshot([ONE_BATCH, NO_BATCH]) == struct.pack(">hI", 1, crc32c.crc32c(body)) + body


def test_p9_earlier_batches_follow_behind_kafkas_entries_and_under_the_same_checksum():
    batches = tuple(BatchMetadata(n, 10 + n, 0, NOW_MS + n) for n in range(5))
    full = ProducerEntry(7, 3, 9, NOW_MS + 4, -1, batches)
    data = encode_snapshot([full, NO_BATCH])
    (count,) = struct.unpack_from(">i", data, 6)
    assert count == 2
    assert struct.unpack_from(">qhiq", data, 10) == (7, 3, 4, 14), "Kafka's entry holds the last batch"
    assert data[10 + 2 * 46 :].startswith(b"fpw1")
    assert struct.unpack_from(">I", data, 2)[0] == crc32c.crc32c(data[6:])
    assert decode_snapshot(data, "x") == [full, NO_BATCH]


def test_p9_a_snapshot_that_kafka_wrote_is_read():
    assert decode_snapshot(encode_snapshot([ONE_BATCH, NO_BATCH]), "x") == [ONE_BATCH, NO_BATCH]


def test_p9_any_flipped_bit_or_missing_byte_of_a_snapshot_is_noticed():
    data = encode_snapshot([ONE_BATCH._replace(batches=ONE_BATCH.batches * 2), NO_BATCH])
    for at in range(len(data)):
        for broken in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]):
            with pytest.raises(CorruptLogFile, match=r"^here at byte"):
                decode_snapshot(broken, "here")


def test_i3_txnindex_entries_are_34_bytes():
    store = MemoryStore()
    log = over(store)
    transact(log, 7, 0, 0)
    transact(log, 8, 0, 0, count=3)
    end(log, 7, 0, commit=False)
    end(log, 8, 0, commit=True)
    log.checkpoint()
    assert bytes(log_file(store, ".txnindex").data) == struct.pack(">hqqqq", 0, 7, 0, 4, 1)


def test_i3_no_txnindex_without_aborts():
    store = MemoryStore()
    log = over(store)
    transact(log, 7, 0, 0)
    end(log, 7, 0, commit=True)
    log.close()
    assert not [name for name in store.child(str(TP)).sizes() if name.endswith(".txnindex")]


def test_l1_index_entries_point_at_batches_by_their_last_offset():
    store = MemoryStore()
    log = over(store, LogConfig(index_interval_bytes=300, segment_bytes=1500))
    for n in range(30):
        send(log, batch(2, timestamp_ms=NOW_MS + n))
    log.checkpoint()
    by_position = {}
    position = base = 0
    for header in headers(log):
        if header.base_offset in {segment.base_offset for segment in log.segments}:
            base, position = header.base_offset, 0
        by_position[base, position] = header
        position += header.size_bytes
    for segment in log.segments:
        entries = list(struct.iter_unpack(">ii", file_of(store, segment, ".index")))
        assert len(entries) >= 2
        for relative_offset, at in entries:
            assert by_position[segment.base_offset, at].last_offset == segment.base_offset + relative_offset
        times = list(struct.iter_unpack(">qi", file_of(store, segment, ".timeindex")))
        assert times == sorted(times)
        assert times[-1] == (segment.max_timestamp_ms, segment.max_timestamp_offset - segment.base_offset)
        for timestamp_ms, relative_offset in times:
            assert timestamp_ms - NOW_MS == (segment.base_offset + relative_offset) // 2


def file_of(store, segment, suffix):
    return store.child(str(TP)).load(file_name(segment.base_offset, suffix))


def test_l1_names_are_twenty_digits():
    assert file_name(170, ".log") == "00000000000000000170.log"
    assert offset_in_name("00000000000000000170.log", ".log") == 170
    for other in ("170.log", "00000000000000000170.log.tmp", "0000000000000000017x.log", "leader-epoch-checkpoint"):
        assert offset_in_name(other, ".log") is None


def test_the_files_of_a_partition_and_of_the_directory():
    store = MemoryStore()
    directory = directory_over(store)
    log = directory.create(TP, bytes(range(16)), LogConfig())
    transact(log, 7, 0, 0)
    end(log, 7, 0, commit=False)
    directory.close()
    assert file_names(store) == [
        "00000000000000000000.log",
        "00000000000000000000.seal",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000002.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    partition = store.child(str(TP))
    assert partition.load("leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert partition.load("partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert store.load("recovery-point-offset-checkpoint") == (
        b"0\n4\nevents 0 2\n#crc32c 1 2895756344\n#AAECAwQFBgcICQoLDA0ODw#events#0 0 0\n#crc32c 0 1849777494\n"
    )
    assert store.load("replication-offset-checkpoint") == b"0\n2\nevents 0 2\n#crc32c 0 2895756344\n"
    assert store.load("log-start-offset-checkpoint") == b"0\n1\n#crc32c 1 0\n"
    assert store.load(".kafka_cleanshutdown") is not None


def test_checkpoints_round_trip_and_say_where_they_are_broken():
    offsets = {TopicPartition("a", 3): 9, TopicPartition("b.c-d", 0): 2**40}
    assert checkpoints.decode_offsets(checkpoints.encode_offsets(offsets), "x") == offsets
    assert checkpoints.decode_offsets(None, "x") == {}
    epochs = [(0, 0), (3, 17)]
    assert checkpoints.decode_epochs(checkpoints.encode_epochs(epochs), "x") == epochs
    for broken in (b"", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"0\nx\n"):
        with pytest.raises(CorruptLogFile, match=r"^here"):
            checkpoints.decode_offsets(broken, "here")


def test_partition_metadata_round_trip():
    for topic_id in (bytes(range(16)), b"\xff" * 16, bytes(16)):
        data = checkpoints.encode_partition_metadata(topic_id)
        assert checkpoints.decode_partition_metadata(data, "x") == topic_id
    assert checkpoints.decode_partition_metadata(None, "x") == bytes(16)
    for broken in (b"version: 0\n", b"version: 0\ntopic_id: !!\n", b"version: 0\ntopic_id: AAAA\n"):
        with pytest.raises(CorruptLogFile):
            checkpoints.decode_partition_metadata(broken, "here")
