"""What the broker counts: plain numbers that cost nothing to keep; `exposition.py` gives them names when asked."""

from collections import defaultdict


class TopicCounters:
    """What happened to one topic's partitions since the start."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "messages_in",
        "produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.produce_requests = 0
        self.fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0


class Metrics:
    """All counters of one broker. Only topics that exist are counted by name, so their number is bounded."""

    def __init__(self) -> None:
        self.topics: defaultdict[str, TopicCounters] = defaultdict(TopicCounters)
        self.no_topic = TopicCounters()
        """Requests for topics that are not there."""
        self.requests: defaultdict[int, int] = defaultdict(int)
        self.request_seconds: defaultdict[int, float] = defaultdict(float)
        self.connections_opened = 0
        self.connections_closed = 0
        self.connections_refused = 0
        self.connections_expired = 0
        self.connections_failed = 0
        self.loop_lag_seconds = 0.0
        self.markers_written = 0

    def topic(self, name: str) -> TopicCounters:
        return self.topics[name]

    def forget_topic(self, name: str) -> None:
        """Drop the counters of a topic that was deleted."""
        self.topics.pop(name, None)

    def count_request(self, api_key: int, seconds: float) -> None:
        """Note one request that was handled, and how long its handler took (waiting for data included)."""
        self.requests[api_key] += 1
        self.request_seconds[api_key] += seconds
