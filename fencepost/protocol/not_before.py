"""The header that says when a share group is to get a record at the earliest; no Kafka knows it."""

from collections.abc import Iterable
from typing import Final

NOT_BEFORE: Final = "not-before"
"""The header's name. Its value is a time in ms since the epoch, as ASCII digits."""
IN_A_BATCH: Final = b"\x14" + NOT_BEFORE.encode()
"""What the bytes of a record with the header have in them: its length as a signed varint, and the name."""
_DIGITS_MAX = 15


def not_before_ms(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    """The latest time that the headers name; None if they name none. A value that is no time says nothing."""
    times = [
        int(value)
        for name, value in headers
        if name == NOT_BEFORE and value is not None and value.isdigit() and len(value) <= _DIGITS_MAX
    ]
    return max(times, default=None)
