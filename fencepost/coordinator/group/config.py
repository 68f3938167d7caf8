"""The numbers of the group coordinator, under Kafka's names with underscores for dots."""

from collections.abc import Mapping
from dataclasses import dataclass, field

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member may wait in its first Join before it is taken for dead; five minutes in Kafka, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Limits and times of groups and their offsets; the defaults are Kafka's except where it says so."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    """How long the first member of an empty group waits for company; Kafka's 3000 hides three seconds in every test."""
    group_max_size: int = 2**31 - 1
    offsets_retention_minutes: int = 10_080
    """How long offsets outlive the group that committed them."""
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    """The longest note that may go with a committed offset; counted in characters, as Kafka does."""
    offsets_topic_num_partitions: int = 50
    """Never changed once there is data."""
    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer")
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    """What members of the consumer protocol are told to keep to; they have no say in either."""
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """Those that members may ask for; the first is used where nobody asks."""
    group_consumer_assignment_interval_ms: int = 0
    """How long a target assignment stands before the next one is made (KIP-1263); Kafka's 1000 hides a heartbeat
    interval in every test."""
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The lowest and highest value of what may be set for one group, by its name there. What was set while other bounds
    held is brought within these."""
