"""The settings of the group coordinator, under Kafka's names with underscores for dots."""

from collections.abc import Mapping
from dataclasses import dataclass, field

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member may wait in its first Join before its session expires; five minutes, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Limits and times of groups and their offsets; the defaults are Kafka's unless the field says otherwise."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    """How long the first member of an empty group waits for others; Kafka's 3000 costs every test three seconds."""
    group_max_size: int = 2**31 - 1
    offsets_retention_minutes: int = 10_080
    """How long the broker keeps offsets that their group no longer uses (row G7)."""
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    """The longest metadata of a committed offset; counted in characters, as in Kafka."""
    offsets_topic_num_partitions: int = 50
    """Never changed once there is data."""
    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer")
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    """The broker sets the interval and the session timeout for members of the consumer protocol."""
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The assignors that members may ask for; the first is the default."""
    group_consumer_assignment_interval_ms: int = 0
    """The shortest time between two target assignments (KIP-1263); Kafka's 1000 costs every test a heartbeat
    interval."""
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The lowest and highest value of each setting of a single group, by its name. A value that was set under other
    bounds is clamped to these."""
