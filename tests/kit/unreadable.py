"""Batches with a good checksum whose records cannot be unpacked."""

import random

from fencepost.protocol.batch_header import read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.record_filter import packed


def unreadable(timestamp_ms: int, key: bytes = b"k", size_bytes: int = 9000) -> bytearray:
    """A batch of one record that claims to be gzip, but holds noise. By default too large to be unpacked inline."""
    header = read_header(build_batch([(timestamp_ms, key, b"v", ())], compression=Compression.GZIP))
    return packed(header, random.Random(size_bytes).randbytes(size_bytes))[1]
