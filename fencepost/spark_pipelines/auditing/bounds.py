"""What an audit knows about a partition before it reads the batches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """The facts about a partition that are known before its batches are read.

    The log holds `start` to before `end`; `end` is None if it is unknown. `stable` are the broker's last stable offsets
    from before and after it reported the end. `why_start` explains the missing offsets below `start`.
    """

    start: int
    end: int | None
    stable: tuple[int, int] | None = None
    compacted: bool = False
    """Whether compaction explains missing offsets and sequence numbers."""
    compacted_to: int = 1 << 63
    """If so, only below this offset."""
    why_start: str = "removed by retention or DeleteRecords"
    end_is_least: bool = False
    """Whether the log may continue after `end`. `end` is then only a lower bound."""
    durable: int | None = None
    """A bad batch from here on is the result of a crash, and recovery truncates it. None: no batch may be bad."""
    listed: int | None = None
    """Below this offset the list of aborted transactions is complete. None: the whole list is complete."""
