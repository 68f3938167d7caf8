"""What generated codecs call while they run: tagged fields."""

from collections.abc import Collection

from fencepost.protocol.varints import Malformed, get_varint, put_varint


def get_tags(b: memoryview, o: int) -> tuple[dict[int, bytes] | None, int]:
    """The tagged fields at `o`, of which none is known here, by tag (None: there are none), and where they end."""
    found: dict[int, bytes] = {}
    last = -1
    count, o = get_varint(b, o)
    for _ in range(count):
        tag, o = get_varint(b, o)
        size, o = get_varint(b, o)
        if o + size > len(b) or tag <= last:
            raise Malformed("tags")
        found[tag] = bytes(b[o : o + size])
        last, o = tag, o + size
    return found or None, o


def put_tags(out: bytearray, known: Collection[tuple[int, bytearray]] | None, unknown: dict[int, bytes] | None) -> None:
    """Write a tagged-field section in the order of tags."""
    fields: list[tuple[int, bytes | bytearray]] = sorted([*(known or ()), *(unknown or {}).items()])
    out += put_varint(len(fields))
    for tag, body in fields:
        out += put_varint(tag)
        out += put_varint(len(body))
        out += body
