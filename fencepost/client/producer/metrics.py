"""A producer's metrics, under the names of Kafka's own producer (KIP-714)."""

from dataclasses import dataclass
from typing import NamedTuple


class ProducerMetrics(NamedTuple):
    """A producer's metrics at one moment. Totals count from its opening; times are in the unit of their name.

    `prometheus()` returns them under the names that dashboards use.
    """

    record_send_total: int
    """Records that were sent, without retries."""
    record_retry_total: int
    """Records that were sent again."""
    record_error_total: int
    """Records that failed."""
    request_total: int
    requests_in_flight: int
    request_latency_avg: float
    """Milliseconds from a Produce request to its response, over all responses; 0 before the first."""
    request_latency_max: float
    record_queue_time_avg: float
    """Milliseconds that batches waited before they were first sent."""
    record_queue_time_max: float
    batch_size_avg: float
    """The size of a batch as sent, in bytes."""
    records_per_request_avg: float
    compression_rate_avg: float
    """Bytes sent over bytes before compression."""
    batch_split_total: int
    """Batches that were too large for the broker and were split."""
    produce_throttle_time_max: float
    """The longest throttle time of the broker's responses, in milliseconds."""
    buffer_total_bytes: int
    buffer_available_bytes: int
    bufferpool_wait_time_ns_total: int
    waiting_threads: int
    """Tasks that wait for room in the buffer."""

    def prometheus(self) -> dict[str, float]:
        """`kafka_producer_...` names with their values."""
        return {f"kafka_producer_{name}": value for name, value in self._asdict().items()}


@dataclass(slots=True, eq=False, repr=False)
class Counters:
    """The counters behind `ProducerMetrics`."""

    record_send: int = 0
    record_retry: int = 0
    record_error: int = 0
    requests: int = 0
    responses: int = 0
    batches: int = 0
    splits: int = 0
    batch_bytes: int = 0
    raw_bytes: int = 0
    throttle_max_ms: int = 0
    latency_s: float = 0.0
    latency_max_s: float = 0.0
    queue_s: float = 0.0
    queue_max_s: float = 0.0

    def queued(self, seconds: float) -> None:
        """A batch is sent for the first time, `seconds` after its first record."""
        self.queue_s += seconds
        self.queue_max_s = max(self.queue_max_s, seconds)

    def answered(self, seconds: float, throttle_ms: int) -> None:
        self.responses += 1
        self.latency_s += seconds
        self.latency_max_s = max(self.latency_max_s, seconds)
        self.throttle_max_ms = max(self.throttle_max_ms, throttle_ms)

    def snapshot(self, in_flight: int, limit: int, used: int, wait_ns: int, waiting: int) -> ProducerMetrics:
        """The metrics now, with the figures of the buffer and of the sender."""
        sent = max(self.batches, 1)
        return ProducerMetrics(
            record_send_total=self.record_send,
            record_retry_total=self.record_retry,
            record_error_total=self.record_error,
            request_total=self.requests,
            requests_in_flight=in_flight,
            request_latency_avg=self.latency_s / max(self.responses, 1) * 1000,
            request_latency_max=self.latency_max_s * 1000,
            record_queue_time_avg=self.queue_s / sent * 1000,
            record_queue_time_max=self.queue_max_s * 1000,
            batch_size_avg=self.batch_bytes / sent,
            records_per_request_avg=(self.record_send + self.record_retry) / max(self.requests, 1),
            compression_rate_avg=self.batch_bytes / self.raw_bytes if self.raw_bytes else 1.0,
            batch_split_total=self.splits,
            produce_throttle_time_max=float(self.throttle_max_ms),
            buffer_total_bytes=limit,
            buffer_available_bytes=max(limit - used, 0),
            bufferpool_wait_time_ns_total=wait_ns,
            waiting_threads=waiting,
        )
