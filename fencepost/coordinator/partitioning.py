"""Maps a transactional id or a group id to a partition of an internal topic."""

import struct
from functools import lru_cache


def java_string_hash(text: str) -> int:
    """The int32 that Java's `String.hashCode` gives for `text`: 31-polynomial over its UTF-16 code units.

    Lone surrogates count as the one unit they are, as they would in a Java string.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(maxsize=65536)
def partition_for(key: str, count: int) -> int:
    """The partition in `range(count)` that owns `key` (row T1 of Kafka's rules; the same hash serves group ids).

    Kafka's `abs` maps the smallest int32, which has no positive counterpart, to 0; so does this one. `count` must
    never change while the topic exists, or ids would map to partitions without their state.
    """
    hashed = java_string_hash(key)
    magnitude = 0 if hashed == -0x8000_0000 else abs(hashed)
    return magnitude % count
