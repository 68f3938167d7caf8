"""The clock of a broker."""

import time


class SystemClock:
    """The machine's wall clock and monotonic clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
