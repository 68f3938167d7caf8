"""Cuts bytes into records: lines with or without a key, or whole files."""

import os
import stat
from collections.abc import Sequence
from itertools import repeat
from typing import IO, NamedTuple

READ_BYTES = 1 << 18
Pair = tuple[bytes | None, bytes | None]
"""Key and value."""


class Cut(NamedTuple):
    """How records are cut out of the input."""

    after: bytes | None
    """What ends a record; None: the end of a file."""
    between: bytes | None
    """What ends a key; None: records have no key in the input."""
    key: bytes | None
    """The key of all records."""
    empty_is_null: bool

    def pairs(self, lines: Sequence[bytes]) -> list[Pair]:
        """The key and the value of each line."""
        if self.between is None and not self.empty_is_null:
            return list(zip(repeat(self.key), lines))
        return [self._pair(line) for line in lines]

    def _pair(self, line: bytes) -> Pair:
        key, value = self.key, line
        if self.between is not None:
            begin, found, rest = line.partition(self.between)
            key, value = (begin, rest) if found else (None, line)
        return (key or None, value or None) if self.empty_is_null else (key, value)


class Input:
    """The records of some files, read as they are asked for.

    Files that may have nothing yet, such as a terminal or a pipe, are waited for without a thread and without a buffer.
    """

    def __init__(self, cut: Cut, files: Sequence[IO[bytes]]) -> None:
        self._cut = cut
        self._files = list(files)
        self._begun = bytearray()  # the record whose end is not read yet
        self._pairs: list[Pair] = []
        self._taken = 0  # how many of the pairs

    async def take(self, limit: int) -> list[Pair]:
        """Up to `limit` records, at least one; none at the end. A cancellation loses nothing."""
        while self._taken == len(self._pairs):
            if not self._files:
                return []
            data = await _read(self._files[0])
            self._pairs, self._taken = self._cut.pairs(self._lines(data)), 0
        taken = self._pairs[self._taken : self._taken + limit]
        self._taken += len(taken)
        return taken

    def _lines(self, data: bytes) -> list[bytes]:
        """The records that end in `data`, the next part of the first file. A last line needs no delimiter."""
        after, begun = self._cut.after, self._begun
        if not data:
            self._begun = bytearray()
            del self._files[0]
            return [bytes(begun)] if begun or after is None else []
        if after is None or after not in data:
            searched = 0 if after is None else max(len(begun) - len(after) + 1, 0)
            begun += data
            if after is None or begun.find(after, searched) < 0:
                return []
            data = b""
        lines = b"".join((begun, data)).split(after)
        self._begun = bytearray(lines.pop())
        return lines


async def _read(file: IO[bytes]) -> bytes:
    """The next bytes of a file, once there are some; none at its end. Raises KafkaError if it cannot be read."""
    import trio

    from fencepost.client import KafkaError

    raw = getattr(file, "raw", file)
    while True:
        await trio.lowlevel.checkpoint()
        try:
            if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
                await trio.lowlevel.wait_readable(raw)
        except OSError:
            pass  # a device such as /dev/null, or no file of the system: it can be read at once
        try:
            data: bytes | None = raw.read(READ_BYTES)
        except OSError as error:
            raise KafkaError(f"cannot read {file.name}: {error.strerror}") from error
        if data is not None:  # None: the file does not block, and another process was quicker
            return data
