"""The five codecs of record batches, with a limit on the size of decompressed data."""

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam

Packed = bytes | bytearray | memoryview


class Compression(IntEnum):
    """The codec in the lowest three bits of a batch's attributes (row L9)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionFailed(ValueError):
    """The codec cannot decompress the bytes."""


class DecompressionLimit(ValueError):
    """The bytes decompress to more than the caller allows. They may be sound: a bomb and a large batch look alike."""


LARGEST_BYTES = 2**31 - 1
"""No batch has more decompressed bytes: the clients that write them count in 32 bits."""
DEFAULT_LIMIT_BYTES = 128 << 20
"""The default of the settings that bound what a batch of another process may decompress to."""

_ZSTD_LEVEL = 3
_GZIP_LEVEL = 6
_LZ4_LEVEL = 4
_FIRST_ROOM_BYTES = 64 << 10

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_BLOCK_SIZE = struct.Struct(">i")
# The densest element of snappy is a copy: 64 bytes out of 3.
_SNAPPY_RATIO = 22


def compress(codec: Compression, data: Packed, level: int | None = None) -> bytes:
    """Compress `data` so that every client can read it: snappy in xerial's frame, LZ4 in frames of independent blocks.

    `level` is the codec's own (KIP-390; None: its default): gzip 1 to 9, lz4 1 to 17, zstd up to 22; snappy has none.
    """
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL if level is None else level))
        case Compression.SNAPPY:
            return _xerial_compress(data)
        case Compression.LZ4:
            return _lz4_compress(data, _LZ4_LEVEL if level is None else level)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))


def decompress(codec: Compression, data: Packed, max_bytes: int) -> bytes | bytearray:
    """Decompress `data`; the memory grows with the real output, never by a size that the data claims.

    Raises DecompressionLimit above `max_bytes`, DecompressionFailed for damaged data.
    """
    match codec:
        case Compression.NONE:
            if len(data) > max_bytes:
                raise DecompressionLimit(f"{len(data)} bytes, {max_bytes} are allowed")
            return bytes(data)
        case Compression.GZIP:
            return _grow(codec, cramjam.gzip.decompress_into, data, max_bytes)
        case Compression.SNAPPY:
            return _snappy_decompress(data, max_bytes)
        case Compression.LZ4:
            return _grow(codec, cramjam.lz4.decompress_into, data, max_bytes)
        case Compression.ZSTD:
            return _grow(codec, cramjam.zstd.decompress_into, data, max_bytes)


def _grow(codec: Compression, unpack_into: Callable[..., int], data: Packed, max_bytes: int) -> bytearray:
    # The codecs stream into the given buffer and stop when it is full, so a larger buffer is tried only after the
    # smaller one was really filled: at most a third of the work is done twice, and a bomb stops at the limit.
    room = min(max_bytes, max(_FIRST_ROOM_BYTES, 8 * len(data)))
    while True:
        out = bytearray(room)
        try:
            size = unpack_into(data, out)
        except (cramjam.DecompressionError, OSError) as error:
            if "write whole buffer" not in str(error):
                raise DecompressionFailed(f"{codec.name.lower()}: {error}") from None
        else:
            del out[size:]
            return out
        if room >= max_bytes:
            raise DecompressionLimit(f"{codec.name.lower()}: more than {max_bytes} bytes in {len(data)}")
        room = min(max_bytes, room * 4)


def _lz4_compress(data: Packed, level: int) -> bytes:
    # Java's reader refuses linked blocks, which are this library's default.
    packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    packer.compress(bytes(data))
    return bytes(packer.finish())


def _xerial_compress(data: Packed) -> bytes:
    parts = [_XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            with view[start : start + _XERIAL_BLOCK_BYTES] as piece:
                block = bytes(cramjam.snappy.compress_raw(piece))
            parts += (_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: Packed, max_bytes: int) -> bytes:
    with memoryview(data) as view:
        if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
            return _snappy_block(view, max_bytes)
        return b"".join(_xerial_blocks(view, max_bytes))


def _xerial_blocks(view: memoryview, max_bytes: int) -> list[bytes]:
    blocks: list[bytes] = []
    at = len(_XERIAL_HEADER)
    if len(view) < at:
        raise DecompressionFailed("snappy: the xerial header is cut off")
    while at < len(view):
        if len(view) - at < _BLOCK_SIZE.size:
            raise DecompressionFailed(f"snappy: block length cut off at byte {at}")
        if view[at : at + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            # Streams of several writers may be joined; each begins with its own header.
            at += len(_XERIAL_HEADER)
            continue
        (size,) = _BLOCK_SIZE.unpack_from(view, at)
        at += _BLOCK_SIZE.size
        if not 0 <= size <= len(view) - at:
            raise DecompressionFailed(f"snappy: block of {size} bytes at byte {at}, {len(view) - at} are there")
        block = _snappy_block(view[at : at + size], max_bytes)
        max_bytes -= len(block)
        blocks.append(block)
        at += size
    return blocks


def _snappy_block(packed: memoryview, max_bytes: int) -> bytes:
    try:
        claimed = int(cramjam.snappy.decompress_raw_len(packed))
        if claimed > len(packed) * _SNAPPY_RATIO:
            raise DecompressionFailed(f"snappy: claims {claimed} bytes out of {len(packed)}, which no block can hold")
        if claimed > max_bytes:
            raise DecompressionLimit(f"snappy: claims {claimed} bytes, {max_bytes} are allowed")
        out = bytearray(claimed)
        size = cramjam.snappy.decompress_raw_into(packed, out) if claimed else 0
    except (cramjam.DecompressionError, OSError) as error:
        raise DecompressionFailed(f"snappy: {error}") from None
    if size != claimed:
        raise DecompressionFailed(f"snappy: {size} bytes came out, {claimed} were claimed")
    return bytes(out)
