"""Cuts bytes into records: lines with or without a key, or whole files."""

from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import trio

READ_BYTES = 1 << 18
Pair = tuple[bytes | None, bytes | None]
"""Key and value."""


class Cut(NamedTuple):
    """How records are cut out of the input."""

    after: bytes
    """What ends a record."""
    between: bytes | None
    """What ends a key; None: records have no key in the input."""
    key: bytes | None
    """The key of all records."""
    empty_is_null: bool

    def pairs(self, lines: Sequence[bytes]) -> list[Pair]:
        """The key and the value of each line."""
        if self.between is None and not self.empty_is_null:
            return [(self.key, line) for line in lines]
        return [self._pair(line) for line in lines]

    def _pair(self, line: bytes) -> Pair:
        key, value = self.key, line
        if self.between is not None:
            begin, found, rest = line.partition(self.between)
            key, value = (begin, rest) if found else (None, line)
        return (key or None, value or None) if self.empty_is_null else (key, value)


def lines_of(files: Sequence[IO[bytes]], after: bytes) -> Iterator[list[bytes]]:
    """The lines of all files, as many at a time as one read gives. A last line needs no delimiter.

    Reads are those of the file itself, without a buffer: an abandoned thread would keep its lock.
    """
    for file in files:
        stream = getattr(file, "raw", file)
        begun = bytearray()
        while data := stream.read(READ_BYTES):
            searched = max(len(begun) - len(after) + 1, 0)
            begun += data
            if begun.find(after, searched) >= 0:
                *lines, rest = bytes(begun).split(after)
                begun = bytearray(rest)
                yield lines
        if begun:
            yield [bytes(begun)]


def wholes_of(files: Sequence[IO[bytes]]) -> Iterator[list[bytes]]:
    """The content of each file."""
    for file in files:
        yield [file.read()]


class Input:
    """The records of the input. A thread reads ahead of the sender."""

    def __init__(self, cut: Cut, lines: Iterator[list[bytes]]) -> None:
        self._cut = cut
        self._lines = lines
        self._rest: list[Pair] = []
        self._received: trio.MemoryReceiveChannel[list[Pair]] | None = None

    def begin(self, nursery: "trio.Nursery") -> None:
        """Begin to read."""
        import trio

        send, self._received = trio.open_memory_channel[list[Pair]](2)
        nursery.start_soon(self._read, send)

    async def _read(self, send: "trio.MemorySendChannel[list[Pair]]") -> None:
        import trio

        async with send:
            while True:
                lines = await trio.to_thread.run_sync(next, self._lines, None, abandon_on_cancel=True)
                if lines is None:
                    return
                await send.send(self._cut.pairs(lines))

    async def take(self, limit: int) -> list[Pair]:
        """Up to `limit` records, at least one; none at the end. A cancellation loses nothing."""
        import trio

        assert self._received is not None
        while not self._rest:
            try:
                self._rest = await self._received.receive()
            except trio.EndOfChannel:
                return []
        taken, self._rest = self._rest[:limit], self._rest[limit:]
        return taken
