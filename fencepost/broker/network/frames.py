"""The input side of a connection: a buffer that grows with what arrived, cut into length-prefixed frames."""

import struct

_LENGTH = struct.Struct(">i")
LENGTH_BYTES = 4
START_BYTES = 16 << 10
KEPT_BYTES = 64 << 10
LEAST_FREE_BYTES = 4 << 10
BURST_BYTES = 128 << 10
"""As much is received at a time from whoever sends so much: five small batches in flight come with one call."""

_HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")


class BadFrame(Exception):
    """A length that no request has; the text says what the client probably tried."""


class FrameBuffer:
    """Bytes received and not yet handled.

    A frame's claimed length never makes the buffer grow: it doubles when it is full, so that it holds at most twice
    what the client truly sent; up to `BURST_BYTES` also when all that was in it is handled, because more was waiting
    then. A frame is a view into the buffer; it is valid until the next `space`.
    """

    __slots__ = ("_end", "_frame_bytes_max", "_start", "_view", "_was_full")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._view = memoryview(bytearray(START_BYTES))
        self._start = 0
        self._end = 0
        self._was_full = False

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame whose rest has not arrived."""
        return self._end - self._start

    @property
    def capacity_bytes(self) -> int:
        """Memory held."""
        return len(self._view)

    def space(self) -> memoryview:
        """Where the next bytes may be received into; never empty."""
        if self._was_full or len(self._view) - self._end < LEAST_FREE_BYTES:
            self._make_room()
        return self._view[self._end :] if self._end else self._view

    def received(self, count: int) -> None:
        """Note that `count` bytes were put into `space`."""
        self._end += count
        self._was_full = self._end == len(self._view)

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, or None. Raises BadFrame."""
        start, end = self._start, self._end
        if end - start < LENGTH_BYTES:
            return None
        (size,) = _LENGTH.unpack_from(self._view, start)
        if not 0 < size <= self._frame_bytes_max:
            raise BadFrame(self._explain(size))
        begins = start + LENGTH_BYTES
        ends = begins + size
        if ends > end:
            return None
        if ends == end:
            self._start = self._end = 0
        else:
            self._start = ends
        return self._view[begins:ends]

    def shrink(self) -> None:
        """Give back the memory of large frames that were handled."""
        if len(self._view) > KEPT_BYTES and self._start == self._end:
            self._view = memoryview(bytearray(START_BYTES))
            self._start = self._end = 0
            self._was_full = False

    def _make_room(self) -> None:
        pending = self.pending_bytes
        capacity = len(self._view)
        grows = self._was_full and capacity < BURST_BYTES
        self._was_full = False
        if pending <= capacity // 2 and not grows:
            self._view[:pending] = self._view[self._start : self._end]
        else:
            larger = memoryview(bytearray(capacity * 2))
            larger[:pending] = self._view[self._start : self._end]
            self._view = larger
        self._start, self._end = 0, pending

    def _explain(self, size: int) -> str:
        first = bytes(self._view[self._start : self._start + LENGTH_BYTES])
        if first[:2] == b"\x16\x03":
            return "the client speaks TLS, but this listener is plaintext (security.protocol=SSL on the client?)"
        if first in _HTTP:
            return f"the client speaks HTTP ({first.decode().strip()}), but this listener speaks Kafka's protocol"
        if size <= 0:
            return f"a frame length of {size}"
        return f"a frame of {size} bytes is over socket.request.max.bytes={self._frame_bytes_max}"
