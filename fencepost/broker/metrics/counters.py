"""The broker's counters: plain numbers that cost little to update; `exposition.py` names them for Prometheus."""

from collections import defaultdict
from dataclasses import dataclass


@dataclass(slots=True, eq=False, repr=False)
class TopicCounters:
    """The counters of one topic's partitions since the start."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0


class Metrics:
    """All counters of one broker. Only topics that exist are counted by name, so their number is bounded."""

    def __init__(self) -> None:
        self.topics: defaultdict[str, TopicCounters] = defaultdict(TopicCounters)
        self.no_topic = TopicCounters()
        """Counters of requests for unknown topics."""
        self.requests: defaultdict[int, int] = defaultdict(int)
        self.request_seconds: defaultdict[int, float] = defaultdict(float)
        self.connections_opened = 0
        self.connections_closed = 0
        self.connections_refused = 0
        self.connections_expired = 0
        self.connections_failed = 0
        self.loop_lag_seconds = 0.0
        self.loop_busy_share = 0.0
        """The share of a core that the event loop's thread used lately."""
        self.markers_written = 0
        self.dead_letters = 0
        """Records that share groups gave up, and that were appended to their dead-letter topics."""
        self.dead_letters_failed = 0

    def topic(self, name: str) -> TopicCounters:
        return self.topics[name]

    def forget_topic(self, name: str) -> None:
        self.topics.pop(name, None)

    def count_request(self, api_key: int, seconds: float) -> None:
        """Count one handled request, and the time of its handler (including the wait for data)."""
        self.requests[api_key] += 1
        self.request_seconds[api_key] += seconds
