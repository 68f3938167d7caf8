"""Reusable memory for large responses.

A fresh megabyte costs more than receiving into it: it is zeroed, and its pages cause faults, because the allocator
returns such blocks to the system at once. The pool reuses a block only without other references to it, which two checks
prove: no buffer of it is exported (Python then allows resizing it), and its reference count is that of the pool's own
references. So arrays and views over a response stay valid as long as a program holds one of them.
"""

import sys
from collections import deque

LARGE_BYTES = 128 << 10
"""From this size on a response gets a block. The allocator handles smaller ones well."""
MOST_BYTES = 16 << 20
"""The maximum size of a pool, blocks in use included."""
_MOST_BLOCKS = 8
_OWN_REFERENCES = 2
"""The reference count of a block in its slot: the slot's reference, and that of the checking call."""
_STEPS = 8


class _Slot:
    __slots__ = ("block",)

    def __init__(self, size: int) -> None:
        self.block = bytearray(size)

    def free(self) -> bool:
        """Whether only this slot refers to the block and its parts."""
        if sys.getrefcount(self.block) > _OWN_REFERENCES:
            return False
        try:
            self.block.append(self.block.pop())  # in place: neither address nor size changes
        except BufferError:
            return False
        return True


class FramePool:
    """Blocks of at most `most_bytes` in all; blocks that stay in use leave the pool, and Python frees them later.

    Threads may share it: a thread takes a slot out before it checks it.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._slots: deque[_Slot] = deque()

    @property
    def kept_bytes(self) -> int:
        """The size of all blocks in the pool, free or not."""
        return sum(len(slot.block) for slot in list(self._slots))

    def take(self, size: int) -> memoryview:
        """`size` writable bytes with any content; at most an eighth of the block behind them is unused."""
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
        """Drop the least recently used blocks."""
        while len(self._slots) > _MOST_BLOCKS or self.kept_bytes > self._most_bytes:
            try:
                self._slots.popleft()
            except IndexError:
                return


def _rounded(size: int) -> int:
    """`size` rounded up by at most an eighth and a page, so that responses of about one size share blocks."""
    step = max((1 << (size.bit_length() - 1)) // _STEPS, 4096)
    return -(-size // step) * step


FRAMES = FramePool()
"""The pool of this process: its size does not grow with brokers and clients."""
