"""The clock of a broker."""

import time


class SystemClock:
    """The machine's wall clock and monotonic clock."""

    def now_ms(self) -> int:
        """Wall-clock time, in ms since 1970."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Seconds on a clock that never goes back."""
