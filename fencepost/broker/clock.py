"""The clocks of a broker: the machine's, and one that follows trio's so that a test can jump over hours."""

import time

import trio


class SystemClock:
    """Wall time and monotonic time of the machine."""

    def now_ms(self) -> int:
        """Wall-clock time, in ms since 1970."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Seconds on a clock that never goes back."""


class TrioClock:
    """Time as the running trio loop sees it, from a given date on: under trio's MockClock one seed is one world."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._start = trio.current_time()

    def now_ms(self) -> int:
        """The start date plus what has passed on trio's clock, in ms since 1970."""
        return self._start_ms + int((trio.current_time() - self._start) * 1000)

    def monotonic(self) -> float:
        """trio's own time, in seconds."""
        return trio.current_time()
