"""A clock that runs with the machine's and can be advanced: trio's deadlines and the broker's wall clock use it."""

import math
import time

import trio


class JumpingClock(trio.abc.Clock):
    """Both the clock of a trio loop and the `Clock` of the broker in it. Restarts of the broker do not reset it."""

    def __init__(self) -> None:
        self.offset_seconds = 0.0
        """How far it was advanced in all."""

    def jump(self, seconds: float) -> None:
        """Advance it. While the loop runs, call this in the loop's own thread, which checks its deadlines next."""
        self.offset_seconds += seconds

    # As the broker's clock

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + int(self.offset_seconds * 1000)

    def monotonic(self) -> float:
        return time.monotonic() + self.offset_seconds

    # As the loop's

    def start_clock(self) -> None:
        """Do nothing: the clock runs already."""

    def current_time(self) -> float:
        return self.monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.monotonic() if deadline != math.inf else math.inf
