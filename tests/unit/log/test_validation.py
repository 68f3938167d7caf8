"""What may enter a log at all (rows L7, L8, L9, L15)."""

import pytest

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.producer_state import AppendOrigin
from fencepost.broker.log.reading import read_batches
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.protocol.batch_header import DELETE_HORIZON_BIT, read_header, rewrite_crc, set_producer
from fencepost.protocol.compression import Compression, compress
from fencepost.protocol.control_records import end_txn_marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record, decode_records, encode_records
from tests.unit.log.kit import NOW_MS, UNCOMMITTED, batch, joined, over, send

HOUR_MS = 3600 * 1000


def records(*timestamps_ms, key=b"k"):
    return [(timestamp_ms, key, b"v", ()) for timestamp_ms in timestamps_ms]


def stored(log):
    data = joined(read_batches(log, 0, 1 << 20, UNCOMMITTED).parts)
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


@pytest.mark.parametrize("length", [0, 1, 11, 12, 60, 61, 70])
def test_l8_less_than_a_batch_is_invalid_record_for_it_was_sent_like_that(length):
    assert send(over(MemoryStore()), batch()[:length]).error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_l8_a_length_below_a_headers_is_corrupt_message(length):
    short = batch()
    short[8:12] = length.to_bytes(4, "big", signed=True)
    assert send(over(MemoryStore()), short).error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (255, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_l8_old_magic_is_invalid_record_and_unknown_magic_corrupt_message(magic, code):
    other = batch()
    other[16] = magic
    assert send(over(MemoryStore()), other).error is code


def test_l8_exactly_one_batch():
    assert send(over(MemoryStore()), batch() + batch()).error is ErrorCode.INVALID_RECORD
    assert send(over(MemoryStore()), batch() + b"rest").error is ErrorCode.INVALID_RECORD


def test_l8_an_unknown_codec_is_invalid_record():
    odd = batch()
    odd[22] |= 5
    rewrite_crc(odd, 0)
    assert send(over(MemoryStore()), odd).error is ErrorCode.INVALID_RECORD


def test_l8_clients_may_not_write_markers():
    log = over(MemoryStore())
    forged = end_txn_marker(7, 0, True, 0, NOW_MS)
    assert send(log, forged).error is ErrorCode.INVALID_RECORD
    set_producer(forged, 0, 7, 0, 0)
    assert send(log, forged).error is ErrorCode.INVALID_RECORD, "with a sequence, too"


def test_l8_clients_may_not_set_a_delete_horizon():
    forged = build_batch(records(NOW_MS), extra_attributes=DELETE_HORIZON_BIT)
    assert send(over(MemoryStore()), forged).error is ErrorCode.INVALID_RECORD


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


COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))


@pytest.mark.parametrize("count", [1, 4])
def test_l8_the_count_must_be_that_of_the_records_where_they_are_looked_at(count):
    data = build_batch(records(NOW_MS, NOW_MS))
    data[23:27], data[57:61] = (count - 1).to_bytes(4, "big"), count.to_bytes(4, "big")
    rewrite_crc(data, 0)
    assert send(over(MemoryStore(), COMPACTED), data).error is ErrorCode.INVALID_RECORD
    assert send(over(MemoryStore()), data).error is ErrorCode.INVALID_RECORD
    packed = build_batch(records(NOW_MS, NOW_MS), compression=Compression.LZ4)
    packed[23:27], packed[57:61] = (count - 1).to_bytes(4, "big"), count.to_bytes(4, "big")
    rewrite_crc(packed, 0)
    assert send(over(MemoryStore()), packed).error is ErrorCode.NONE, "a plain topic's batches are not decompressed"


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize("offsets", [(0, 0, 2), (2, 1, 0), (1, 2, 2)])
def test_l8_l9_offsets_within_a_batch_are_put_right_where_records_are_looked_at(codec, offsets):
    """Kafka builds a batch anew whose inner offsets do not count up from 0."""
    body, _, _ = encode_records([Record(n, NOW_MS, b"%d" % n, b"v") for n in range(3)], NOW_MS)
    deltas = bytearray(body)
    size = len(body) // 3
    for number, offset in enumerate(offsets):
        assert deltas[number * size + 3] == number << 1, "length, attributes, timestamp delta, offset delta"
        deltas[number * size + 3] = offset << 1
    packed = compress(codec, deltas)
    data = build_batch(records(NOW_MS, NOW_MS, NOW_MS), compression=codec)[:61] + packed
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    rewrite_crc(data, 0)
    for config in (COMPACTED, LogConfig(compression_type="gzip")):
        log = over(MemoryStore(), config)
        assert send(log, bytes(data)).error is ErrorCode.NONE
        header, found = stored(log)
        assert [(record.offset, record.key) for record in found] == [(0, b"0"), (1, b"1"), (2, b"2")]
        assert header.record_count == 3


def test_l7_a_header_whose_latest_timestamp_is_not_its_records_is_put_right_where_they_are_looked_at():
    data = build_batch(records(NOW_MS, NOW_MS - 5))
    data[35:43] = (NOW_MS - 3).to_bytes(8, "big")
    rewrite_crc(data, 0)
    log = over(MemoryStore(), COMPACTED)
    assert send(log, data).error is ErrorCode.NONE
    assert stored(log)[0].max_timestamp == NOW_MS


def test_l8_producers_send_base_offset_0():
    assert send(over(MemoryStore()), build_batch(records(NOW_MS), base_offset=4)).error is ErrorCode.INVALID_RECORD


def test_l8_max_message_bytes():
    size = len(batch())
    for limit, code in ((size, ErrorCode.NONE), (size - 1, ErrorCode.MESSAGE_TOO_LARGE)):
        assert send(over(MemoryStore(), LogConfig(max_message_bytes=limit)), batch()).error is code


def test_l9_max_message_bytes_holds_before_and_after_recompression():
    data = build_batch([(NOW_MS, b"k", b"v" * 10_000, ())], compression=Compression.GZIP)
    for limit in (len(data) - 1, len(data), 10_000):
        config = LogConfig(max_message_bytes=limit, compression_type="uncompressed")
        assert send(over(MemoryStore(), config), bytes(data)).error is ErrorCode.MESSAGE_TOO_LARGE
    config = LogConfig(max_message_bytes=11_000, compression_type="uncompressed")
    assert send(over(MemoryStore(), config), bytes(data)).error is ErrorCode.NONE


def test_l1_a_batch_larger_than_a_segment_is_record_list_too_large():
    assert send(over(MemoryStore(), LogConfig(segment_bytes=60)), batch()).error is ErrorCode.RECORD_LIST_TOO_LARGE


def test_l1_l9_what_must_fit_a_segment_is_the_batch_as_it_is_stored():
    large = build_batch([(NOW_MS, b"k", b"v" * 10_000, ())])
    packed = build_batch([(NOW_MS, b"k", b"v" * 10_000, ())], compression=Compression.GZIP)
    shrinks = LogConfig(segment_bytes=1000, compression_type="gzip")
    assert send(over(MemoryStore(), shrinks), large).error is ErrorCode.NONE
    grows = LogConfig(segment_bytes=1000, compression_type="uncompressed")
    assert send(over(MemoryStore(), grows), packed).error is ErrorCode.RECORD_LIST_TOO_LARGE


def test_l15_every_bad_record_is_named_once_and_a_timestamp_decides_the_code():
    """As in Kafka: a key that is missing hides the record's timestamp, one bad timestamp makes it INVALID_TIMESTAMP."""
    late = NOW_MS + HOUR_MS + 1
    mixed = [(NOW_MS, None, b"v", ()), (NOW_MS, b"k", b"v", ()), (late, None, b"v", ()), (late, b"k", b"v", ())]
    log = over(MemoryStore(), COMPACTED)
    info = send(log, build_batch(mixed))
    assert info.error is ErrorCode.INVALID_TIMESTAMP
    assert [(index, "key" in why) for index, why in info.record_errors] == [(0, True), (2, True), (3, False)]
    assert send(log, build_batch(mixed[:3])).error is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0, "one bad record refuses all of them"


def test_l15_the_list_of_record_errors_is_bounded():
    info = send(over(MemoryStore(), COMPACTED), build_batch([(NOW_MS, None, b"v", ())] * 3000))
    assert len(info.record_errors) == 1000


def test_l9_a_compacted_topic_names_the_records_without_a_key():
    log = over(MemoryStore(), COMPACTED)
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


@pytest.mark.parametrize("topic_type", ["CreateTime", "LogAppendTime"])
def test_l7_producers_may_not_send_log_append_time(topic_type):
    data = build_batch(records(NOW_MS, NOW_MS), log_append_time_ms=NOW_MS)
    info = send(over(MemoryStore(), LogConfig(message_timestamp_type=topic_type)), data)
    assert info.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in info.record_errors] == [0, 1]


def test_l7_records_without_a_timestamp_are_within_all_bounds():
    log = over(MemoryStore(), LogConfig(message_timestamp_before_max_ms=1000))
    assert send(log, build_batch(records(-1, -1))).error is ErrorCode.NONE
    assert stored(log)[0].max_timestamp == -1


def test_l7_kip_937_bounds_do_not_hold_for_log_append_time():
    config = LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1000)
    log = over(MemoryStore(), config)
    assert send(log, build_batch(records(1, NOW_MS + 2 * HOUR_MS))).error is ErrorCode.NONE
    assert stored(log)[0].max_timestamp == NOW_MS


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


def test_l9_what_can_not_be_unpacked_is_invalid_record_where_it_must_be_looked_into():
    """Its checksum holds, so sending it again, which CORRUPT_MESSAGE asks for, would not help."""
    log = over(MemoryStore(), COMPACTED)
    data = build_batch(records(*[NOW_MS] * 20), compression=Compression.ZSTD)
    data[61:65] = b"\0\0\0\0"
    rewrite_crc(data, 0)
    assert send(log, data).error is ErrorCode.INVALID_RECORD


PROSE = b" ".join(b"the %d quick brown foxes jump over %d lazy dogs" % (n * n, n % 97) for n in range(2000))


@pytest.mark.parametrize(
    ("codec", "level", "other"), [("gzip", 1, 9), ("gzip", -1, 1), ("lz4", 1, 12), ("lz4", 9, 12), ("zstd", 1, 19)]
)
def test_l9_kip_390_the_level_of_the_codec_is_that_of_the_topic(codec, level, other):
    sizes = []
    for wanted in (level, other):
        settings = {"compression_type": codec, f"compression_{codec}_level": wanted}
        log = over(MemoryStore(), LogConfig(**settings))
        assert send(log, build_batch([(NOW_MS, b"k", PROSE, ())])).error is ErrorCode.NONE
        header, found = stored(log)
        assert found[0].value == PROSE
        sizes.append(header.size_bytes)
    assert sizes[0] != sizes[1]


def test_l9_the_default_level_of_lz4_is_the_codecs_own_as_in_kafka():
    log = over(MemoryStore(), LogConfig(compression_type="lz4"))
    send(log, build_batch([(NOW_MS, b"k", PROSE, ())]))
    plain = build_batch([(NOW_MS, b"k", PROSE, ())], compression=Compression.LZ4)
    assert stored(log)[0].size_bytes == len(plain)


def test_l9_a_batch_in_the_topics_codec_is_stored_as_it_came():
    log = over(MemoryStore(), LogConfig(compression_type="zstd", compression_zstd_level=19))
    data = build_batch([(NOW_MS, b"k", PROSE, ())], compression=Compression.ZSTD, level=1)
    send(log, bytes(data))
    assert joined(read_batches(log, 0, 1 << 20, UNCOMMITTED).parts)[61:] == bytes(data)[61:]


def test_a_read_only_buffer_is_taken_as_well():
    log = over(MemoryStore())
    assert send(log, bytes(batch())).base_offset == 0
    assert send(log, memoryview(bytes(batch()))).base_offset == 1
    assert stored(log)[0].base_offset == 0


def test_stored_batches_carry_offset_and_leader_epoch_and_a_valid_crc():
    from fencepost.protocol.batch_header import check_crc, iter_headers

    log = over(MemoryStore())
    log.leader_epoch = 4
    for _ in range(3):
        send(log, batch(2))
    data = joined(read_batches(log, 0, 1 << 20, UNCOMMITTED).parts)
    for number, (at, header) in enumerate(iter_headers(data)):
        assert (header.base_offset, header.partition_leader_epoch) == (2 * number, 4)
        assert check_crc(data, at, header)
