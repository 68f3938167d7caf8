"""How long something took, as a Prometheus histogram that costs little to add to."""

from bisect import bisect_left

OF_CALLS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds that fit calls of a database or an object store."""


class Histogram:
    """Counts of durations since the start, by bucket, and their sum. One thread at a time may add to them."""

    def __init__(self, bounds_seconds: tuple[float, ...] = OF_CALLS) -> None:
        self._bounds = bounds_seconds
        self._counts = [0] * (len(bounds_seconds) + 1)
        self.sum_seconds = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum_seconds += seconds

    def buckets(self) -> list[tuple[str, int]]:
        """Each upper bound as text, and how many durations were not longer; at last `+Inf`, and all."""
        total, found = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, total))
        return found
