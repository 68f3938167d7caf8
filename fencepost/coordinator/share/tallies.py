"""Counts of the share coordinator since the start of the process, for the metrics (Kafka's ShareCoordinatorMetrics)."""

from dataclasses import dataclass, field

from fencepost.coordinator.histogram import Histogram


@dataclass(slots=True, eq=False, repr=False)
class Tallies:
    """What was written to `__share_group_state`."""

    writes: int = 0
    """Changes that leaders had stored, each of one share partition."""
    snapshots: int = 0
    write_times: Histogram = field(default_factory=Histogram)
    """Of requests to store changes, until that is durable; those that were refused, too."""
