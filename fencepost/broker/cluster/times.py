"""How long something took, as a histogram that costs little to add to."""

from bisect import bisect_left

BOUNDS_S = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.5, 5.0, 10.0)


class Times:
    """Totals since the start. One thread at a time may add to them."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        """The sum."""
        self._counts = [0] * (len(BOUNDS_S) + 1)

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.count += 1
        self.seconds += seconds
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1

    def buckets(self) -> list[tuple[str, int]]:
        """Each bound in seconds, and how many durations were not longer; at last `+Inf`, and all."""
        total, found = 0, []
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, total))
        return found
