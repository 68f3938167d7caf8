"""Large requests of legal size, built from their bytes: an array of many small elements in a small rest."""

import struct
import time
from typing import Any

import numpy as np

from fencepost.protocol.batch_header import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, pack_header
from fencepost.protocol.compression import Compression, compress
from fencepost.protocol.headers import write_request_header
from fencepost.protocol.registry import API_BY_KEY, Api
from fencepost.protocol.schema import ArrayOf, StructType
from fencepost.protocol.varints import put_signed_varint
from tests.kit.frames import framed

PRODUCE, FETCH, METADATA, OFFSET_FETCH, CREATE_ACLS = 0, 1, 3, 9, 30
INT, SHORT = struct.Struct(">i"), struct.Struct(">h")


def frame(key: int, version: int, *body: bytes) -> bytes:
    """A request's bytes, length included."""
    return framed(write_request_header(API_BY_KEY[key], version, 7, "hostile"), *body)


def text(value: str) -> bytes:
    return SHORT.pack(len(value)) + value.encode()


def metadata_of_empty_names(count: int) -> bytes:
    return frame(METADATA, 1, INT.pack(count), bytes(2 * count))


def metadata_of_names(count: int) -> bytes:
    """Metadata of `count` topics that do not exist, as a client with many topics sends it; none is created."""
    return frame(METADATA, 4, INT.pack(count), *(text(f"a-topic-with-a-name-{n}") for n in range(count)), b"\0")


def create_acls(count: int) -> bytes:
    """CreateAcls of `count` rules, each for a topic of its own."""
    fixed = b"".join((b"\x03", text("User:alice"), text("*"), b"\x03\x03"))
    rules = (b"".join((b"\x02", text(f"a-topic-with-a-name-{n}"), fixed)) for n in range(count))
    return frame(CREATE_ACLS, 1, INT.pack(count), *rules)


def fetch(topic: str, count: int, *, distinct: bool) -> bytes:
    """Fetch v11 of one topic: one partition `count` times, or `count` partitions."""
    one = struct.Struct(">iiqqi")
    parts = [one.pack(n if distinct else 0, -1, 0, -1, 1 << 20) for n in range(count if distinct else 1)]
    many = b"".join(parts) if distinct else parts[0] * count
    head = struct.pack(">iiiibii", -1, 0, 1, 50 << 20, 0, 0, -1)
    return frame(FETCH, 11, head, INT.pack(1), text(topic), INT.pack(count), many, INT.pack(0), text(""))


def produce_of_empty_partitions(topic: str, count: int) -> bytes:
    head = SHORT.pack(-1) + struct.pack(">hi", 1, 1000)
    return frame(PRODUCE, 8, head, INT.pack(1), text(topic), INT.pack(count), struct.pack(">ii", 0, -1) * count)


def offset_fetch(count: int) -> bytes:
    """OffsetFetch v5 of `count` partitions of one topic."""
    return frame(
        OFFSET_FETCH, 5, text("group"), INT.pack(1), text("other"), INT.pack(count), *map(INT.pack, range(count))
    )


def broken_at_the_end(count: int) -> bytes:
    """Metadata v1 of `count` names, the last of them longer than the frame."""
    return frame(METADATA, 1, INT.pack(count), bytes(2 * (count - 1)), SHORT.pack(99))


def many_tags(count: int) -> bytes:
    """ApiVersions v3 with `count` unknown tagged fields."""
    tags = bytearray()
    for tag in range(count):
        tags += bytes((tag & 127 | 128, tag >> 7 & 127 | 128, tag >> 14 & 127 | 128, tag >> 21, 0))
    size = bytes((count & 127 | 128, count >> 7 & 127 | 128, count >> 14 & 127 | 128, count >> 21))
    return frame(18, 3, b"\2a\2b", size, bytes(tags))


def bomb(count: int, *, ahead: bool, codec: Compression = Compression.ZSTD, size: int = 1) -> bytearray:
    """A batch of `count` records with `size` bytes each; some random bytes keep its ratio below the limit of 256."""
    value = put_signed_varint(size) + b"x" * size
    record = put_signed_varint(5 + len(value)) + b"\0\0\0\0" + value + b"\0"
    records = np.tile(np.frombuffer(record, dtype=np.uint8), (count, 1))
    spread = records[:: max(1, count // 330_000)]
    spread[:, len(record) - 2] = np.random.default_rng(5).integers(0, 256, len(spread), dtype=np.uint8)
    packed = compress(codec, records.tobytes())
    now_ms = int(time.time() * 1000) + (7_200_000 if ahead else 0)
    batch = bytearray(HEADER_SIZE) + packed
    length = len(batch) - LOG_OVERHEAD
    times = now_ms, now_ms
    pack_header(batch, 0, BatchHeader(0, length, -1, MAGIC, 0, codec, count - 1, *times, -1, -1, -1, count))
    return batch


def first_array(api: Api, version: int) -> tuple[str, Any] | None:
    """The name and the element's type of the first array in a request, or None."""
    for name, field in api.request.fields.items():
        if field.exists(version) and isinstance(field.subcon, ArrayOf) and not field.is_tagged(version):
            return name, field.subcon.subcon
    return None


def flood_of_elements(api: Api, version: int, size_bytes: int, most: int = 1 << 30) -> bytes | None:
    """A request of at most `size_bytes` with `most` of the smallest elements in its first array; None without one."""
    found = first_array(api, version)
    if found is None:
        return None
    name, element = found
    value = element() if isinstance(element, StructType) else _plain(element)
    sizes = [len(api.request.encode(api.request(**{name: [value] * count}), version)) for count in (1, 2)]
    count = min(most, size_bytes // max(1, sizes[1] - sizes[0]))
    return frame(api.key, version, api.request.encode(api.request(**{name: [value] * count}), version))


def _plain(element: Any) -> Any:
    from fencepost.protocol.primitives import LengthPrefixed

    if isinstance(element, LengthPrefixed):
        return "" if element.kind == "string" else b""
    return bytes(16) if element.sizeof() == 16 else 0
