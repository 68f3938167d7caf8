"""The broker's counters: plain numbers that cost little to update; `exposition.py` names them for Prometheus."""

from collections import Counter, defaultdict
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
    share_fetch_requests: int = 0
    failed_share_fetch_requests: int = 0
    share_acknowledgements: int = 0
    failed_share_acknowledgements: int = 0


SHARE_GROUPS_MAX = 1000
"""The share groups that are counted by name; of more, the counters that were begun first are forgotten."""


@dataclass(slots=True, eq=False, repr=False)
class ShareGroupCounters:
    """How many records of one share group were acquired since the start, and what became of them."""

    acquired: int = 0
    accepted: int = 0
    released: int = 0
    """By members, or because their sessions ended."""
    rejected: int = 0
    expired: int = 0
    """Records whose locks ended."""
    archived: int = 0
    """Rejected records and gaps, and those that were delivered as often as the limit allows."""


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
        self.share_groups: dict[str, ShareGroupCounters] = {}
        self.acknowledged: Counter[int] = Counter()
        """Records of share groups by the type of their acknowledgement."""

    def topic(self, name: str) -> TopicCounters:
        return self.topics[name]

    def share_group(self, group_id: str) -> ShareGroupCounters:
        found = self.share_groups.get(group_id)
        if found is None:
            found = self.share_groups[group_id] = ShareGroupCounters()
            if len(self.share_groups) > SHARE_GROUPS_MAX:
                del self.share_groups[next(iter(self.share_groups))]
        return found

    def forget_topic(self, name: str) -> None:
        self.topics.pop(name, None)

    def count_request(self, api_key: int, seconds: float) -> None:
        """Count one handled request, and the time of its handler (including the wait for data)."""
        self.requests[api_key] += 1
        self.request_seconds[api_key] += seconds
