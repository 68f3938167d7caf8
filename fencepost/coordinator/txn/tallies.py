"""How transactions ended, and how long they were open: counted since the start of the process."""

from collections import Counter

from fencepost.coordinator.histogram import Histogram
from fencepost.coordinator.txn.causes import Reason
from fencepost.coordinator.txn.state import CompleteCommit, Completed, Prepared

DURATION_BOUNDS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Upper bounds of the histogram's buckets; the last bucket has none. 900 s is the longest Kafka allows by default."""
CLIENT, EMPTY = "client", "empty"
"""Reasons of ends: EndTxn of the holder; the same, under TV2, without a partition in the transaction."""


class Tallies:
    """Transactions that are complete, all their markers written."""

    def __init__(self) -> None:
        self.ended: Counter[tuple[str, str]] = Counter({("commit", CLIENT): 0, ("abort", CLIENT): 0})
        """By result (commit, abort) and reason."""
        self.durations = {True: Histogram(DURATION_BOUNDS_SECONDS), False: Histogram(DURATION_BOUNDS_SECONDS)}
        """Of commits (True) and aborts, from the first partition to the last marker."""

    def count(self, decided: Prepared, state: Completed, reason: Reason) -> None:
        """Count one complete transaction."""
        if not decided.partitions:
            self.ended["abort", EMPTY] += 1
            return
        label = CLIENT if reason is Reason.ENDED else reason.value
        is_commit = isinstance(state, CompleteCommit)
        self.ended["commit" if is_commit else "abort", label] += 1
        self.durations[is_commit].add(max(0, state.updated_ms - state.started_ms) / 1000)
