"""Kafka's murmur2 of a whole Arrow column of keys, with numpy. The results equal those of the client's partitioner."""

from __future__ import annotations

from typing import Any

from fencepost.client.core.partitioner import murmur2

_M = 0x5BD1E995
_SEED = 0x9747B28C
_POSITIVE = 0x7FFFFFFF
_LONG_KEY_BYTES = 256
"""Keys of this size or more are hashed one by one. The vectorized loop makes one pass for every four bytes."""


def byte_spans(column: Any) -> tuple[Any, Any, Any]:
    """(starts, lengths, data) of a binary or large_binary array, as numpy arrays. Nulls have length 0."""
    import numpy as np

    large = str(column.type).startswith("large_")
    _, ends, data = column.buffers()
    kind = np.int64 if large else np.int32
    if ends is None:
        offsets = np.zeros(len(column) + 1, np.int64)
    else:
        offsets = np.frombuffer(ends, kind)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return offsets[:-1], offsets[1:] - offsets[:-1], raw


def hashes(column: Any) -> Any:
    """The murmur2 of each key, as numpy uint32. The value for a null has no meaning."""
    import numpy as np

    starts, lengths, data = byte_spans(column)
    h = (np.uint32(_SEED) ^ lengths.astype(np.uint32)).astype(np.uint32)
    short = lengths < _LONG_KEY_BYTES
    longest = int(lengths[short].max(initial=0))
    m = np.uint32(_M)
    for word in range(longest // 4):
        rows = np.flatnonzero(short & (lengths >= 4 * (word + 1)))
        at = starts[rows] + 4 * word
        k = data[at].astype(np.uint32)
        for byte in (1, 2, 3):
            k |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        k *= m
        k ^= k >> np.uint32(24)
        k *= m
        h[rows] = h[rows] * m ^ k
    rest = lengths & 3
    for count in (3, 2, 1):
        rows = np.flatnonzero(short & (rest >= count))
        at = starts[rows] + lengths[rows] - rest[rows] + count - 1
        h[rows] ^= data[at].astype(np.uint32) << np.uint32(8 * (count - 1))
    rows = np.flatnonzero(short & (rest > 0))
    h[rows] *= m
    h ^= h >> np.uint32(13)
    h *= m
    h ^= h >> np.uint32(15)
    for row in np.flatnonzero(~short):
        start = int(starts[row])
        h[row] = murmur2(data[start : start + int(lengths[row])].tobytes())
    return h


def partitions_of_keys(column: Any, count: int) -> Any:
    """Java's `toPositive(murmur2(key)) % count` for each key, as numpy int32."""
    import numpy as np

    return ((hashes(column) & np.uint32(_POSITIVE)) % np.uint32(count)).astype(np.int32)
