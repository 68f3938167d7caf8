"""What a broker of a cluster reports about itself: in metrics, and at /ready."""

from typing import TYPE_CHECKING, NamedTuple

from fencepost.broker.cluster.byte_cache import CacheCounters
from fencepost.broker.cluster.objects import ObjectCounters
from fencepost.broker.cluster.writer import WriterCounters

if TYPE_CHECKING:
    from fencepost.broker.cluster.growth import GrowthCounters


class ClusterStats(NamedTuple):
    """One run of a broker."""

    active: bool
    """It leads a slot."""
    slots: int
    """How many it leads."""
    leader_epoch: int
    peers: int
    followed: int
    """Logs of other brokers that consumers read here."""
    lease_age_s: float
    """Since the last successful commit or renewal was sent."""
    unavailable: str | None
    """Why commits wait."""
    conflict: str | None
    """Why they fail again and again."""
    writer: WriterCounters
    cache: CacheCounters
    objects: ObjectCounters | None
    """None for the doubles of tests."""
    growth: "GrowthCounters"
    objects_deleted: int
    """By garbage collection and by sweeps."""
