"""The clock of a simulated broker: trio's time, and a wall clock that somebody may set."""

import trio

START_MS = 1_790_000_000_000
"""Some day in 2026."""


class SimClock:
    """Wall time runs with trio's clock until `jump` sets it; monotonic time never notices. Made inside `trio.run`."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._offset_ms = start_ms - int(trio.current_time() * 1000)

    def now_ms(self) -> int:
        """Wall-clock time, in ms since 1970."""
        return self._offset_ms + int(trio.current_time() * 1000)

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return trio.current_time()

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock, forward or back."""
        self._offset_ms += int(seconds * 1000)
