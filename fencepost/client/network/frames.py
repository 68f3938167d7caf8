"""Memory for large answers, used again once nobody refers to it any more.

A fresh megabyte costs more than receiving into it: it is zeroed, and its pages are faults, as the allocator gives
such blocks back to the system at once. What is used again is a block that nobody refers to any more, which two things
prove: no buffer of it is exported (Python then lets it be resized), and its reference count is that of our own
references. So arrays and views over an answer stay as they are for as long as anybody holds one of them.
"""

import sys
from collections import deque

LARGE_BYTES = 128 << 10
"""From this size on an answer is kept in a block. Smaller ones the allocator handles well."""
MOST_BYTES = 16 << 20
"""What a pool keeps at most, whether somebody refers to it or not."""
_MOST_BLOCKS = 8
_OWN_REFERENCES = 2
"""Of a block in its slot: the slot's, and the one for the call that asks."""
_STEPS = 8


class _Slot:
    __slots__ = ("block",)

    def __init__(self, size: int) -> None:
        self.block = bytearray(size)

    def free(self) -> bool:
        """Whether nobody but this slot refers to the block, nor to any part of it."""
        if sys.getrefcount(self.block) > _OWN_REFERENCES:
            return False
        try:
            self.block.append(self.block.pop())  # in place: the memory stays where it is, and as large
        except BufferError:
            return False
        return True


class FramePool:
    """Blocks of at most `most_bytes` in all; those that are referred to for longer leave it, and live on by themselves.

    May be shared by threads: whoever looks at a slot has taken it out first.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._slots: deque[_Slot] = deque()

    @property
    def kept_bytes(self) -> int:
        """The size of all blocks which are kept, free or not."""
        return sum(len(slot.block) for slot in list(self._slots))

    def take(self, size: int) -> memoryview:
        """`size` bytes to be written to, whatever stands in them; at most an eighth of the memory behind is spare."""
        if size < LARGE_BYTES:
            return memoryview(bytearray(size))
        wanted = _rounded(size)
        for _ in range(len(self._slots)):
            try:
                slot = self._slots.popleft()
            except IndexError:
                break  # another thread has it
            fits = len(slot.block) == wanted and slot.free()
            found = memoryview(slot.block)[:size] if fits else None
            self._slots.append(slot)
            if found is not None:
                return found
        slot = _Slot(wanted)
        frame = memoryview(slot.block)[:size]
        if wanted <= self._most_bytes // 2:
            self._slots.append(slot)
            self._shrink()
        return frame

    def _shrink(self) -> None:
        """Let go of what was used longest ago."""
        while len(self._slots) > _MOST_BLOCKS or self.kept_bytes > self._most_bytes:
            try:
                self._slots.popleft()
            except IndexError:
                return


def _rounded(size: int) -> int:
    """`size` rounded up, so that answers of about one size share blocks: by at most an eighth, and a page."""
    step = max((1 << (size.bit_length() - 1)) // _STEPS, 4096)
    return -(-size // step) * step


FRAMES = FramePool()
"""The process's own: what it keeps does not grow with brokers and clients."""
