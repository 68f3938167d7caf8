"""Holds bytes in memory up to a limit and then, if configured, in a temporary file."""

import tempfile
from typing import IO, NamedTuple, TypeAlias


class Spilled(NamedTuple):
    """The place of some bytes in the file."""

    offset: int
    size_bytes: int


Held: TypeAlias = bytes | Spilled


class Full(Exception):
    """There is no room, and no file to spill to."""


class Spill:
    """Holds bytes until they are freed. The file is unnamed, and truncated whenever all its bytes are freed."""

    def __init__(self, max_bytes: int, *, to_file: bool) -> None:
        self._limit = max_bytes
        self._to_file = to_file
        self._file: IO[bytes] | None = None
        self._end = 0
        self._in_file = 0
        self.memory_bytes = 0
        self.spilled_bytes = 0
        """How many bytes were written to the file in all."""

    def put(self, data: bytes | bytearray | memoryview) -> Held:
        """Hold a copy. Raises Full, and OSError if the disk is full."""
        if self.memory_bytes + len(data) <= self._limit:
            self.memory_bytes += len(data)
            return bytes(data)
        if not self._to_file:
            raise Full
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this does
        self._file.seek(self._end)
        self._file.write(data)
        held = Spilled(self._end, len(data))
        self._end += len(data)
        self._in_file += 1
        self.spilled_bytes += len(data)
        return held

    def get(self, held: Held) -> bytes:
        if not isinstance(held, Spilled):
            return held
        assert self._file is not None
        self._file.seek(held.offset)
        return self._file.read(held.size_bytes)

    def free(self, held: Held) -> None:
        if not isinstance(held, Spilled):
            self.memory_bytes -= len(held)
            return
        self._in_file -= 1
        if not self._in_file and self._file is not None:
            self._file.truncate(0)
            self._end = 0

    def close(self) -> None:
        """Close the file; its bytes cannot be read after that."""
        if self._file is not None:
            self._file.close()
