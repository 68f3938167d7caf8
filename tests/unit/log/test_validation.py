"""What may enter a log at all (rows L7, L8, L9, L15)."""

import pytest

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.memory import MemoryStore
from fencepost.broker.log.producer_state import AppendOrigin
from fencepost.protocol.compression import Compression
from fencepost.protocol.control_records import end_txn_marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch, read_header
from fencepost.protocol.records import decode_records
from tests.unit.log.kit import NOW_MS, UNCOMMITTED, batch, joined, over, send

HOUR_MS = 3600 * 1000


def records(*timestamps_ms, key=b"k"):
    return [(timestamp_ms, key, b"v", ()) for timestamp_ms in timestamps_ms]


def stored(log):
    data = joined(log.read(0, 1 << 20, UNCOMMITTED).parts)
    header = read_header(data)
    return header, decode_records(data, 0, header)


def test_a_wrong_crc_is_corrupt_message():
    log = over(MemoryStore())
    good = batch()
    for at in range(21, len(good)):
        bad = bytearray(good)
        bad[at] ^= 1
        assert send(log, bad).error is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


@pytest.mark.parametrize("length", [0, 1, 60, 61, 70])
def test_a_truncated_batch_is_corrupt_message(length):
    assert send(over(MemoryStore()), batch()[:length]).error is ErrorCode.CORRUPT_MESSAGE


def test_l8_magic_0_and_1_are_not_taken():
    for magic in (0, 1, 3):
        old = batch()
        old[16] = magic
        assert send(over(MemoryStore()), old).error is ErrorCode.CORRUPT_MESSAGE


def test_l8_exactly_one_batch():
    assert send(over(MemoryStore()), batch() + batch()).error is ErrorCode.INVALID_RECORD


def test_l8_clients_may_not_write_markers():
    log = over(MemoryStore())
    assert send(log, end_txn_marker(7, 0, True, 0, NOW_MS)).error is ErrorCode.INVALID_RECORD


def test_l8_a_producer_id_needs_a_sequence_and_an_epoch():
    log = over(MemoryStore())
    assert send(log, batch(1, 7, 0, -1)).error is ErrorCode.INVALID_RECORD
    assert send(log, batch(1, 7, -1, 0)).error is ErrorCode.INVALID_RECORD


def test_a_transactional_batch_needs_a_producer_id():
    assert send(over(MemoryStore()), batch(transactional=True)).error is ErrorCode.INVALID_RECORD


def test_l8_record_count_and_last_offset_delta_must_agree():
    log = over(MemoryStore())
    gap = build_batch(records(NOW_MS, NOW_MS), last_offset_delta=4)
    assert send(log, gap).error is ErrorCode.INVALID_RECORD
    assert send(log, build_batch([])).error is ErrorCode.INVALID_RECORD


def test_l8_producers_send_base_offset_0():
    assert send(over(MemoryStore()), build_batch(records(NOW_MS), base_offset=4)).error is ErrorCode.INVALID_RECORD


def test_max_message_bytes():
    size = len(batch())
    for limit, code in ((size, ErrorCode.NONE), (size - 1, ErrorCode.MESSAGE_TOO_LARGE)):
        assert send(over(MemoryStore(), LogConfig(max_message_bytes=limit)), batch()).error is code


def test_a_batch_larger_than_a_segment_is_record_list_too_large():
    assert send(over(MemoryStore(), LogConfig(segment_bytes=60)), batch()).error is ErrorCode.RECORD_LIST_TOO_LARGE


def test_l9_a_compacted_topic_names_the_records_without_a_key():
    log = over(MemoryStore(), LogConfig(cleanup_policy=frozenset({"compact"})))
    mixed = build_batch([(NOW_MS, b"k", b"v", ()), (NOW_MS, None, b"v", ()), (NOW_MS, None, b"v", ())])
    info = send(log, mixed)
    assert info.error is ErrorCode.INVALID_RECORD
    assert [index for index, _ in info.record_errors] == [1, 2]
    assert send(log, batch(3)).error is ErrorCode.NONE


def test_l7_log_append_time_replaces_the_producers_timestamps():
    log = over(MemoryStore(), LogConfig(message_timestamp_type="LogAppendTime"))
    info = log.append(batch(2, timestamp_ms=5), AppendOrigin.CLIENT, NOW_MS)
    assert info.log_append_time_ms == NOW_MS
    header, found = stored(log)
    assert header.timestamp_type == 1
    assert [record.timestamp_ms for record in found] == [NOW_MS, NOW_MS]


def test_l7_create_time_keeps_the_producers_timestamps():
    log = over(MemoryStore())
    assert send(log, batch(2, timestamp_ms=5)).log_append_time_ms == -1
    assert [record.timestamp_ms for record in stored(log)[1]] == [5, 5]


def test_l7_kip_937_records_too_far_in_the_future_are_named():
    log = over(MemoryStore())
    info = send(log, build_batch(records(NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1)))
    assert info.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in info.record_errors] == [2]
    assert send(log, build_batch(records(NOW_MS, NOW_MS + HOUR_MS))).error is ErrorCode.NONE


def test_l7_kip_937_records_too_far_in_the_past_are_named():
    log = over(MemoryStore(), LogConfig(message_timestamp_before_max_ms=1000))
    info = send(log, build_batch(records(NOW_MS, NOW_MS - 1001, NOW_MS - 1000)))
    assert info.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in info.record_errors] == [1]


def test_l7_producers_may_not_send_log_append_time_to_a_create_time_topic():
    data = build_batch(records(NOW_MS), log_append_time_ms=NOW_MS)
    info = send(over(MemoryStore()), data)
    assert info.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in info.record_errors] == [0]


@pytest.mark.parametrize("codec", [c for c in Compression if c is not Compression.NONE])
def test_l9_codecs_pass_through_with_compression_type_producer(codec):
    log = over(MemoryStore())
    data = build_batch(records(*[NOW_MS] * 20), compression=codec)
    assert send(log, bytes(data)).error is ErrorCode.NONE
    header, found = stored(log)
    assert header.compression is codec
    assert header.size_bytes == len(data)
    assert len(found) == 20


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_l9_compression_type_recompresses_what_differs_and_keeps_the_producer(name):
    log = over(MemoryStore(), LogConfig(compression_type=name))
    data = build_batch(
        records(*[NOW_MS] * 20),
        compression=Compression.GZIP if name != "gzip" else Compression.LZ4,
        producer_id=7,
        producer_epoch=2,
        base_sequence=11,
        transactional=True,
    )
    info = send(log, data)
    assert (info.error, info.last_offset) == (ErrorCode.NONE, 19)
    header, found = stored(log)
    assert header.compression is (Compression[name.upper()] if name != "uncompressed" else Compression.NONE)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 11)
    assert header.is_transactional
    assert [record.offset for record in found] == list(range(20))


def test_a_compressed_batch_that_can_not_be_unpacked_is_corrupt_where_it_must_be_looked_into():
    log = over(MemoryStore(), LogConfig(cleanup_policy=frozenset({"compact"})))
    data = build_batch(records(*[NOW_MS] * 20), compression=Compression.ZSTD)
    from fencepost.protocol.batch_header import rewrite_crc

    data[61:65] = b"\0\0\0\0"
    rewrite_crc(data, 0)
    assert send(log, data).error is ErrorCode.CORRUPT_MESSAGE


def test_a_read_only_buffer_is_taken_as_well():
    log = over(MemoryStore())
    assert send(log, bytes(batch())).base_offset == 0
    assert send(log, memoryview(bytes(batch()))).base_offset == 1
    assert stored(log)[0].base_offset == 0


def test_stored_batches_carry_offset_and_leader_epoch_and_a_valid_crc():
    from fencepost.protocol.record_batch import check_crc, iter_headers

    log = over(MemoryStore())
    log.leader_epoch = 4
    for _ in range(3):
        send(log, batch(2))
    data = joined(log.read(0, 1 << 20, UNCOMMITTED).parts)
    for number, (at, header) in enumerate(iter_headers(data)):
        assert (header.base_offset, header.partition_leader_epoch) == (2 * number, 4)
        assert check_crc(data, at, header)
