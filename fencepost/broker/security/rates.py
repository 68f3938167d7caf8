"""Kafka's arithmetic of quotas: a rate over sampled windows (KIP-55), and a token bucket (KIP-599). Pure."""

import math
from typing import NamedTuple


class Windows(NamedTuple):
    """How many samples are kept, and how long one takes."""

    samples: int = 11
    seconds: int = 1

    @property
    def ms(self) -> int:
        return self.seconds * 1000


class _Sample:
    """The sum of one window."""

    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.value = 0.0
        self.start_ms = self.last_ms = now_ms


class WindowedSum:
    """The sum over the last windows, as Kafka's WindowedSum (SampledStat) computes it.

    One sample more than `windows.samples` is kept: the oldest one may overlap the start of the period.
    """

    __slots__ = ("_current", "_samples", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add a value, which may be negative."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self.windows.ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def _advance(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % (self.windows.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def _purge(self, now_ms: int) -> None:
        expires_ms = self.windows.samples * self.windows.ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= expires_ms:
                sample.reset(now_ms)

    def total(self, now_ms: int) -> float:
        self._purge(now_ms)
        return sum(sample.value for sample in self._samples)

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the sum covers: at least all windows but one."""
        self._purge(now_ms)
        elapsed = now_ms - min((sample.start_ms for sample in self._samples), default=now_ms)
        missing = self.windows.samples - 1 - elapsed // self.windows.ms
        return max(elapsed + max(missing, 0) * self.windows.ms, 1)

    def is_unused(self, now_ms: int) -> bool:
        """Whether it equals a new one: nothing was recorded in the last windows."""
        self._purge(now_ms)
        return not any(sample.value for sample in self._samples)


class Rate(WindowedSum):
    """A value per second, and the time until it is within a limit again."""

    __slots__ = ()

    def per_second(self, now_ms: int) -> float:
        return self.total(now_ms) / (self.elapsed_ms(now_ms) / 1000)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing may be recorded until the rate is `limit`; 0 if it is not above (Kafka's QuotaUtils).

        If O is the rate over a time of W, the wait X solves O * W / (W + X) = limit.
        """
        rate = self.per_second(now_ms)
        return java_round((rate - limit) / limit * self.elapsed_ms(now_ms)) if rate > limit else 0


class TokenBucket:
    """Tokens that return at a rate, up to a burst of all windows. The count may be negative (KIP-599)."""

    __slots__ = ("_last_ms", "_tokens", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self._tokens = 0.0
        self._last_ms: int | None = None

    def tokens(self, limit: float, now_ms: int) -> float:
        """The tokens left. A new bucket is full."""
        burst = self.windows.samples * self.windows.seconds * limit
        if self._last_ms is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + limit * (now_ms - self._last_ms) / 1000)
        self._last_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        self._tokens = self.tokens(limit, now_ms) - count

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long until no token is missing."""
        tokens = self.tokens(limit, now_ms)
        return java_round(-tokens / limit * 1000) if tokens < 0 else 0

    def is_unused(self, limit: float, now_ms: int) -> bool:
        """Whether it equals a new one: it is full."""
        return self.tokens(limit, now_ms) >= self.windows.samples * self.windows.seconds * limit


def java_round(value: float) -> int:
    """Java's Math.round: halves go up."""
    return math.floor(value + 0.5)
