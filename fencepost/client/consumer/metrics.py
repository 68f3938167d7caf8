"""What a consumer has fetched and given out, counted under the names that Kafka's own consumer has (KIP-714)."""

from collections.abc import Mapping
from dataclasses import dataclass

FETCH = "kafka_consumer_fetch_manager_"
COORDINATOR = "kafka_consumer_coordinator_"


@dataclass(slots=True, eq=False, repr=False)
class FetchMetrics:
    """Totals since the consumer was opened; times in seconds inside, in milliseconds where Kafka's names say so."""

    fetches: int = 0
    bytes_fetched: int = 0
    latency_s: float = 0.0
    latency_max_s: float = 0.0
    throttled_ms: int = 0
    throttle_max_ms: int = 0
    records_consumed: int = 0
    commits: int = 0
    commit_latency_s: float = 0.0
    rebalances: int = 0

    def fetched(self, latency_s: float, size: int, throttle_ms: int) -> None:
        """One answer to a fetch came in, `latency_s` after its request went out, the broker's waiting included."""
        self.fetches += 1
        self.bytes_fetched += size
        self.latency_s += latency_s
        self.latency_max_s = max(self.latency_max_s, latency_s)
        self.throttled_ms += throttle_ms
        self.throttle_max_ms = max(self.throttle_max_ms, throttle_ms)

    def committed(self, latency_s: float) -> None:
        self.commits += 1
        self.commit_latency_s += latency_s

    def names(self, lags: Mapping[object, int | None]) -> dict[str, float]:
        """Everything by its name; the lag is what `Consumer.lag` says, at most over the partitions."""
        fetches, commits = max(self.fetches, 1), max(self.commits, 1)
        known = [lag for lag in lags.values() if lag is not None]
        return {
            f"{FETCH}records_consumed_total": self.records_consumed,
            f"{FETCH}bytes_fetched_total": self.bytes_fetched,
            f"{FETCH}fetch_total": self.fetches,
            f"{FETCH}fetch_latency_avg": self.latency_s * 1000 / fetches,
            f"{FETCH}fetch_latency_max": self.latency_max_s * 1000,
            f"{FETCH}fetch_size_avg": self.bytes_fetched / fetches,
            f"{FETCH}fetch_throttle_time_avg": self.throttled_ms / fetches,
            f"{FETCH}fetch_throttle_time_max": self.throttle_max_ms,
            f"{FETCH}records_per_request_avg": self.records_consumed / fetches,
            f"{FETCH}records_lag_max": max(known, default=0),
            f"{COORDINATOR}commit_total": self.commits,
            f"{COORDINATOR}commit_latency_avg": self.commit_latency_s * 1000 / commits,
            f"{COORDINATOR}rebalance_total": self.rebalances,
        }
