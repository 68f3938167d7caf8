"""A consumer's metrics, under the names of Kafka's own consumer (KIP-714)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

_OF_THE_COORDINATOR = ("commit_total", "commit_latency_avg", "rebalance_total", "assigned_partitions")
_OUR_OWN = ("queued_bytes", "queued_bytes_max")


class ConsumerMetrics(NamedTuple):
    """A consumer's metrics at one moment. Totals count from its opening; times are in milliseconds.

    `prometheus()` returns them under the names that dashboards use.
    """

    records_consumed_total: int
    bytes_fetched_total: int
    fetch_total: int
    fetch_latency_avg: float
    """From a Fetch request to its response, including the wait at the broker."""
    fetch_latency_max: float
    fetch_size_avg: float
    """The size of a response in bytes."""
    fetch_throttle_time_avg: float
    """The throttle time of the broker's responses."""
    fetch_throttle_time_max: float
    records_per_request_avg: float
    records_lag_max: int
    """The maximum of `Consumer.lag` over the partitions."""
    commit_total: int
    commit_latency_avg: float
    rebalance_total: int
    assigned_partitions: int
    queued_bytes: int
    """How much of `queued_max_bytes` is held or reserved."""
    queued_bytes_max: int
    """The maximum that was held."""

    def prometheus(self) -> dict[str, float]:
        """`kafka_consumer_...` names with their values; `fencepost_queued_bytes` for what Kafka does not have."""
        return {_prometheus_name(name): value for name, value in self._asdict().items()}


def _prometheus_name(name: str) -> str:
    if name in _OUR_OWN:
        return f"fencepost_{name}"
    part = "coordinator" if name in _OF_THE_COORDINATOR else "fetch_manager"
    return f"kafka_consumer_{part}_{name}"


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
        """Count one Fetch response, `latency_s` after its request, including the wait at the broker."""
        self.fetches += 1
        self.bytes_fetched += size
        self.latency_s += latency_s
        self.latency_max_s = max(self.latency_max_s, latency_s)
        self.throttled_ms += throttle_ms
        self.throttle_max_ms = max(self.throttle_max_ms, throttle_ms)

    def committed(self, latency_s: float) -> None:
        self.commits += 1
        self.commit_latency_s += latency_s

    def snapshot(self, lags: Iterable[int | None], assigned: int, queued: int, most_queued: int) -> ConsumerMetrics:
        """The metrics now, with the figures of the consumer's other parts."""
        fetches, commits = max(self.fetches, 1), max(self.commits, 1)
        return ConsumerMetrics(
            records_consumed_total=self.records_consumed,
            bytes_fetched_total=self.bytes_fetched,
            fetch_total=self.fetches,
            fetch_latency_avg=self.latency_s * 1000 / fetches,
            fetch_latency_max=self.latency_max_s * 1000,
            fetch_size_avg=self.bytes_fetched / fetches,
            fetch_throttle_time_avg=self.throttled_ms / fetches,
            fetch_throttle_time_max=self.throttle_max_ms,
            records_per_request_avg=self.records_consumed / fetches,
            records_lag_max=max((lag for lag in lags if lag is not None), default=0),
            commit_total=self.commits,
            commit_latency_avg=self.commit_latency_s * 1000 / commits,
            rebalance_total=self.rebalances,
            assigned_partitions=assigned,
            queued_bytes=queued,
            queued_bytes_max=most_queued,
        )
