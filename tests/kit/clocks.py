"""The clocks of tests: one follows trio's, one stands still."""

import trio

START_MS = 1_700_000_000_000


class VirtualClock:
    """Follows trio's clock, which a test can move; `shift_ms` sets the wall clock forward or back."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.shift_ms + round(trio.current_time() * 1000)

    def monotonic(self) -> float:
        return trio.current_time()


class StillClock:
    """Stands still until a test sets `ms`."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000
