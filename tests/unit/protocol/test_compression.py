"""The five codecs: round trips, the forms other clients need, damage and bombs (row L9)."""

import gzip
import struct
import tracemalloc

import cramjam
import pytest

from fencepost.protocol.compression import (
    Compression,
    DecompressionFailed,
    DecompressionLimit,
    compress,
    decompress,
)

PACKERS = [codec for codec in Compression if codec is not Compression.NONE]
SAMPLES = [b"", b"x", b"abc" * 50_000, bytes(range(256)) * 1000]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", SAMPLES)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_was_packed_comes_out_again(codec: Compression, data: bytes, kind: type) -> None:
    packed = compress(codec, kind(data))
    assert decompress(codec, kind(packed), max(len(data), 1)) == data


@pytest.mark.parametrize("codec", list(Compression))
def test_one_byte_over_the_limit_is_refused(codec: Compression) -> None:
    data = b"fence" * 100_000
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(DecompressionLimit):
        decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", PACKERS)
def test_a_bomb_is_refused_without_the_memory_it_asks_for(codec: Compression) -> None:
    """reliability.md section 6: the packed bytes of 256 MiB of zeros cost no more than the limit."""
    bomb = compress(codec, bytes(256 << 20))
    tracemalloc.start()
    with pytest.raises(DecompressionLimit):
        decompress(codec, bomb, 1 << 20)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 4 << 20


@pytest.mark.parametrize("codec", PACKERS)
def test_every_cut_is_a_decompression_failure(codec: Compression) -> None:
    packed = compress(codec, b"every byte counts, every byte counts" * 20)
    unpacked = decompress(codec, packed, 1 << 20)
    for size in range(len(packed)):
        try:
            out = decompress(codec, packed[:size], 1 << 20)
        except DecompressionFailed:
            continue
        # Xerial's snappy is a row of blocks without an end mark: cut between blocks, it is a shorter row.
        assert codec is Compression.SNAPPY
        assert out != unpacked


@pytest.mark.parametrize("codec", PACKERS)
def test_every_bit_flip_is_a_failure_or_bounded_output(codec: Compression) -> None:
    packed = compress(codec, b"every bit counts" * 10)
    for bit in range(len(packed) * 8):
        broken = bytearray(packed)
        broken[bit >> 3] ^= 1 << (bit & 7)
        try:
            out = decompress(codec, broken, 4096)
        except DecompressionFailed:
            continue
        assert len(out) <= 4096


def test_snappy_is_written_in_xerials_frame_and_read_raw_too() -> None:
    """Java clients write xerial's frame; librdkafka writes raw blocks and reads both."""
    data = b"raw and framed" * 10_000
    packed = compress(Compression.SNAPPY, data)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data


def test_joined_xerial_streams_are_read_as_one() -> None:
    packed = compress(Compression.SNAPPY, b"one") + compress(Compression.SNAPPY, b"two")
    assert decompress(Compression.SNAPPY, packed, 6) == b"onetwo"


def test_a_snappy_block_that_claims_more_than_snappy_can_hold_is_refused_before_memory_is_taken() -> None:
    claims_1_gib = b"\x80\x80\x80\x80\x04" + b"\x00x"
    tracemalloc.start()
    with pytest.raises(DecompressionFailed):
        decompress(Compression.SNAPPY, claims_1_gib, 1 << 31)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1 << 20


@pytest.mark.parametrize("length", [-1, 2**31 - 1, 100])
def test_a_xerial_block_length_that_does_not_fit_is_refused(length: int) -> None:
    packed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, length) + b"abc"
    with pytest.raises(DecompressionFailed):
        decompress(Compression.SNAPPY, packed, 1 << 20)


def test_lz4_frames_have_independent_blocks_as_javas_reader_demands() -> None:
    packed = compress(Compression.LZ4, b"independent" * 20_000)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    version, independent = packed[4] >> 6, packed[4] >> 5 & 1
    assert (version, independent) == (1, 1)


def test_gzip_is_readable_by_the_standard_library() -> None:
    assert gzip.decompress(compress(Compression.GZIP, b"plain gzip")) == b"plain gzip"
