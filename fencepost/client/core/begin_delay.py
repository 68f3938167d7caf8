"""How long a TV2 transaction waits after the end of the one before it, adapted to the cost of earlier waits.

Kafka answers EndTxn before the markers are written. The next transaction's first batch then meets
CONCURRENT_TRANSACTIONS inside the broker, which retries only after 20 ms (`add.partitions.to.txn.retry.backoff.ms`),
while writing the markers takes about 1 ms. So if acknowledgements soon after an end are that late, the next begin waits
1 ms. With a broker that answers after the markers there is no delay.
"""

from typing import Final

PENALTY_S: Final = 0.015
CLOSE_S: Final = 0.005
FIRST_S, LONGEST_S = 0.001, 0.004
PROBE_AFTER: Final = 500
"""After this many acknowledgements in time, half the pause is tried."""


class BeginDelay:
    """The pause of one producer before a begin; times are seconds of one clock."""

    def __init__(self) -> None:
        self.pause_s = 0.0
        self._ended_at = float("-inf")
        self._began_at = float("-inf")
        self._usual_s = FIRST_S
        self._in_time = 0

    def due(self, now: float) -> float:
        """When a transaction that is requested `now` may begin; mostly at once."""
        return max(now, self._ended_at + self.pause_s)

    def began(self, now: float) -> None:
        self._began_at = now

    def acknowledged(self, seconds: float) -> None:
        """The transaction's last records, flushed at its end, were acknowledged after `seconds`."""
        if self._began_at - self._ended_at > max(CLOSE_S, 2 * self.pause_s):
            return
        if seconds < PENALTY_S + self._usual_s:
            self._usual_s = 0.9 * self._usual_s + 0.1 * min(seconds, PENALTY_S)
            self._in_time += 1
            if self._in_time >= PROBE_AFTER:
                self._in_time = 0
                self.pause_s = self.pause_s / 2 if self.pause_s > FIRST_S / 2 else 0.0
            return
        self._in_time = 0
        self.pause_s = min(max(2 * self.pause_s, FIRST_S), LONGEST_S)

    def ended(self, now: float) -> None:
        self._ended_at = now
