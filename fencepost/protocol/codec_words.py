"""Functions that generated codecs call at run time: tagged fields."""

from fencepost.protocol.varints import Malformed, get_varint, put_varint

TAGS_MAX = 1000
"""The most tagged fields of one struct. Kafka's messages have at most four."""


def get_tags(b: memoryview, o: int) -> tuple[dict[int, bytes] | None, int]:
    """The tagged fields at `o`, all unknown to this version, by tag (None: there are none), and their end."""
    found: dict[int, bytes] = {}
    last = -1
    count, o = get_varint(b, o)
    if count > TAGS_MAX:
        raise Malformed("tags")
    for _ in range(count):
        tag, o = get_varint(b, o)
        size, o = get_varint(b, o)
        if o + size > len(b) or tag <= last:
            raise Malformed("tags")
        found[tag] = bytes(b[o : o + size])
        last, o = tag, o + size
    return found or None, o


def merged_tags(count: int, known: bytes | bytearray, unknown: dict[int, bytes]) -> bytes:
    """A tagged-field section: the `count` encoded fields in `known`, and the `unknown` ones, in the order of tags."""
    found, _ = get_tags(memoryview(put_varint(count) + known), 0)
    fields = sorted({**(found or {}), **unknown}.items())
    parts = [put_varint(len(fields))]
    for tag, body in fields:
        parts += put_varint(tag), put_varint(len(body)), body
    return b"".join(parts)
