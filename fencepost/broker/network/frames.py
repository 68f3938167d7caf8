"""The input side of a connection: a buffer that grows with the received bytes, cut into length-prefixed frames."""

import struct

from fencepost.broker.byte_budget import ByteBudget

_LENGTH = struct.Struct(">i")
LENGTH_BYTES = 4
START_BYTES = 16 << 10
KEPT_BYTES = 64 << 10
LEAST_FREE_BYTES = 4 << 10
BURST_BYTES = 128 << 10
"""The most bytes that one call receives from a busy client: five small batches in flight arrive with one call."""

HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")


class BadFrame(Exception):
    """An invalid frame length; the text says which protocol the client probably speaks."""


class NoRoom(Exception):
    """The buffer must grow by `growth` bytes, but the budget of all connections has fewer."""

    def __init__(self, growth: int) -> None:
        super().__init__(growth)
        self.growth = growth


class FrameBuffer:
    """Received bytes that are not handled yet.

    A frame's claimed length never makes the buffer grow. A full buffer doubles, so it holds at most twice the bytes
    that the client sent. Below `BURST_BYTES` a full buffer doubles even if all its frames were handled, because more
    bytes were waiting. A frame is a view into the buffer, valid until the next `space`.
    """

    __slots__ = ("_budget", "_burst_bytes", "_end", "_frame_bytes_max", "_limit_name", "_start", "_view", "_was_full")

    def __init__(self, frame_bytes_max: int, budget: ByteBudget) -> None:
        self._budget = budget
        self.limit(frame_bytes_max)
        self._view = memoryview(bytearray(START_BYTES))
        self._start = 0
        self._end = 0
        self._was_full = False

    def limit(
        self, frame_bytes_max: int, name: str = "socket.request.max.bytes", burst_bytes: int = BURST_BYTES
    ) -> None:
        """Bound the next frames by a setting, and the buffer that serves many small frames by `burst_bytes`."""
        self._frame_bytes_max, self._limit_name, self._burst_bytes = frame_bytes_max, name, burst_bytes

    @property
    def pending_bytes(self) -> int:
        return self._end - self._start

    @property
    def capacity_bytes(self) -> int:
        return len(self._view)

    def space(self) -> memoryview:
        """The free part of the buffer, for the next bytes; never empty. Raises NoRoom."""
        if self._was_full or len(self._view) - self._end < LEAST_FREE_BYTES:
            self._make_room()
        return self._view[self._end :] if self._end else self._view

    def received(self, count: int) -> None:
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
        """Release the memory of large frames that were handled."""
        if len(self._view) > KEPT_BYTES and self._start == self._end:
            self._budget.give(len(self._view) - KEPT_BYTES)
            self._view = memoryview(bytearray(START_BYTES))
            self._start = self._end = 0
            self._was_full = False

    def close(self) -> None:
        self._start = self._end = 0
        self.shrink()

    def _make_room(self) -> None:
        pending, capacity = self.pending_bytes, len(self._view)
        grows = self._was_full and capacity < self._burst_bytes
        if pending <= capacity // 2 and not grows:
            self._view[:pending] = self._view[self._start : self._end]
            self._start, self._end, self._was_full = 0, pending, False
        else:
            growth = capacity * 2 - max(capacity, KEPT_BYTES)
            if growth > 0 and not self._budget.try_take(growth):
                raise NoRoom(growth)
            self.grow()

    def grow(self) -> None:
        """Double the buffer. The budget gave the bytes: NoRoom names them."""
        pending = self.pending_bytes
        larger = memoryview(bytearray(len(self._view) * 2))
        larger[:pending] = self._view[self._start : self._end]
        self._view = larger
        self._start, self._end, self._was_full = 0, pending, False

    def _explain(self, size: int) -> str:
        first = bytes(self._view[self._start : self._start + LENGTH_BYTES])
        if first[:2] == b"\x16\x03":
            return "the client speaks TLS, but this listener is plaintext (security.protocol=SSL on the client?)"
        if first in HTTP_METHODS:
            return f"the client speaks HTTP ({first.decode().strip()}), but this listener speaks Kafka's protocol"
        if size <= 0:
            return f"a frame length of {size}"
        return f"a frame of {size} bytes is over {self._limit_name}={self._frame_bytes_max}"
