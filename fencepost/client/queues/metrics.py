"""A queue's metrics, under the names of Kafka's share consumer (ShareFetchMetricsRegistry)."""

from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.client.consumer.metrics import FetchMetrics

_OUR_OWN = ("assigned_partitions", "in_flight")


class QueueMetrics(NamedTuple):
    """A queue's metrics at one moment. Totals count from its opening; times are in milliseconds.

    `prometheus()` returns them under the names that dashboards use.
    """

    records_consumed_total: int
    """Acquired records that could be read, also those that the program has not taken yet."""
    bytes_consumed_total: int
    fetch_total: int
    fetch_latency_avg: float
    """From a ShareFetch request to its response, including the wait at the broker."""
    fetch_latency_max: float
    fetch_size_avg: float
    """The size of the batches in a response, in bytes."""
    fetch_throttle_time_avg: float
    """The throttle time of the broker's responses."""
    fetch_throttle_time_max: float
    records_per_request_avg: float
    acknowledgements_send_total: int
    """Records in acknowledgements, each time they are sent, renewals included."""
    acknowledgements_error_total: int
    """Those of them that the broker refused."""
    assigned_partitions: int
    in_flight: int
    """How much of `max_in_flight` is held."""

    def prometheus(self) -> dict[str, float]:
        """`kafka_consumer_share_fetch_manager_...` names with their values; `fencepost_queue_...` for our own."""
        return {
            f"{'fencepost_queue' if name in _OUR_OWN else 'kafka_consumer_share_fetch_manager'}_{name}": value
            for name, value in self._asdict().items()
        }


@dataclass(slots=True, eq=False, repr=False)
class ShareMetrics:
    """Totals since the queue was opened."""

    fetches: FetchMetrics = field(default_factory=FetchMetrics)
    acknowledgements: int = 0
    refused: int = 0

    def snapshot(self, assigned: int, in_flight: int) -> QueueMetrics:
        """The metrics now, with the figures of the queue's other parts."""
        fetches = self.fetches
        count = max(fetches.fetches, 1)
        return QueueMetrics(
            records_consumed_total=fetches.records_consumed,
            bytes_consumed_total=fetches.bytes_fetched,
            fetch_total=fetches.fetches,
            fetch_latency_avg=fetches.latency_s * 1000 / count,
            fetch_latency_max=fetches.latency_max_s * 1000,
            fetch_size_avg=fetches.bytes_fetched / count,
            fetch_throttle_time_avg=fetches.throttled_ms / count,
            fetch_throttle_time_max=fetches.throttle_max_ms,
            records_per_request_avg=fetches.records_consumed / count,
            acknowledgements_send_total=self.acknowledgements,
            acknowledgements_error_total=self.refused,
            assigned_partitions=assigned,
            in_flight=in_flight,
        )
