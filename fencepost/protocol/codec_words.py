"""What generated codecs call while they run: tagged fields and records."""

import struct
from collections.abc import Callable
from typing import Any

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


def put_records(write: Callable[[Any], None], value: Any, compact: bool) -> None:
    """Write a records field: its length, then the buffers as they are (one, or a list of them)."""
    if value is None:
        write(b"\0" if compact else b"\xff\xff\xff\xff")
        return
    parts = value if isinstance(value, list) else (value,)
    length = sum(map(len, parts))
    write(put_varint(length + 1) if compact else struct.pack(">i", length))
    for part in parts:
        write(part)


def put_tags(write: Callable[[Any], None], known: list[tuple[int, bytes]], unknown: dict[int, bytes] | None) -> None:
    """Write a tagged-field section in the order of tags; nearly always there are none."""
    if not known and not unknown:
        write(b"\0")
        return
    fields = sorted([*known, *unknown.items()]) if unknown else known
    write(put_varint(len(fields)))
    for tag, body in fields:
        write(put_varint(tag))
        write(put_varint(len(body)))
        write(body)
