"""Cuts bytes into records: lines with or without a key, or whole files."""

import os
import stat
import sys
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
    """The records of some files (`-` is standard input), opened and read as they are asked for.

    A record is at most `largest` bytes long.

    Files that may have nothing yet, such as a terminal or a pipe, are waited for without a thread and without a buffer.
    """

    def __init__(self, cut: Cut, files: Sequence[str], largest: int) -> None:
        self._cut = cut
        self._files = list(files)
        self._largest = largest
        self._file: IO[bytes] | None = None
        """The first of the files, once it is open."""
        self._ended = 0  # how many records
        self._begun = bytearray()  # the record whose end is not read yet
        self._pairs: list[Pair] = []
        self._taken = 0  # how many of the pairs

    async def take(self, limit: int) -> list[Pair]:
        """Up to `limit` records, at least one; none at the end. A cancellation loses nothing.

        Raises KafkaError for a file that cannot be read, and (MESSAGE_TOO_LARGE) for a record that is too long.
        """
        from fencepost.client import KafkaError
        from fencepost.protocol.errors import ErrorCode

        while self._taken == len(self._pairs):
            if not self._files:
                return []
            if len(self._begun) > self._largest:
                self._close()
                what = f"record {self._ended + 1} is refused: it is larger than max.request.size allows"
                raise KafkaError(f"{what} ({self._largest})", code=ErrorCode.MESSAGE_TOO_LARGE)
            try:
                if self._file is None:
                    self._file = sys.stdin.buffer if self._files[0] == "-" else _opened(self._files[0])
                data = await _read(self._file)
            except OSError as error:
                raise KafkaError(f"cannot read {self._files[0]}: {error.strerror}") from error
            lines = self._lines(data)
            self._ended += len(lines)
            self._pairs, self._taken = self._cut.pairs(lines), 0
        taken = self._pairs[self._taken : self._taken + limit]
        self._taken += len(taken)
        return taken

    def _close(self) -> None:
        """Close the first file; standard input is not ours."""
        if self._file is not None and self._files[0] != "-":
            self._file.close()
        self._file = None

    def _lines(self, data: bytes) -> list[bytes]:
        """The records that end in `data`, the next part of the first file. A last line needs no delimiter."""
        after, begun = self._cut.after, self._begun
        if not data:
            self._begun = bytearray()
            self._close()
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


def _opened(path: str) -> IO[bytes]:
    """The file; a FIFO without waiting for its writer. Raises OSError."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


async def _read(file: IO[bytes]) -> bytes:
    """The next bytes of a file, once there are some; none at its end. Raises OSError."""
    import trio

    raw = getattr(file, "raw", file)
    while True:
        await trio.lowlevel.checkpoint()
        try:
            if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
                await trio.lowlevel.wait_readable(raw)
        except OSError:
            pass  # a device such as /dev/null, or no file of the system: it can be read at once
        data: bytes | None = raw.read(READ_BYTES)
        if data is not None:  # None: the file does not block, and another process was quicker
            return data
