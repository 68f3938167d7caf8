"""Garbage collection of a cluster's objects all at once: a running broker leaves an interval between its two steps."""

from fencepost.broker.cluster.engine import Engine
from fencepost.broker.cluster.objects.claims import CLAIM_IDLE_MS
from fencepost.broker.cluster.objects.gc import Collector, Deletable


def collect(engine: Engine, objects: Deletable, idle_ms: int = CLAIM_IDLE_MS) -> int:
    """Mark and delete what is unused; returns how many objects were deleted. Raises StoreUnavailable."""
    collector = Collector(objects, idle_ms)
    for _ in ("mark", "delete"):
        collector.step(engine)
    return collector.deleted
