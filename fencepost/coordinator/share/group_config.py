"""The settings of share groups, under Kafka's names with underscores for dots (KIP-932)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from fencepost.protocol.reset_policy import ResetPolicy, parse_reset
from fencepost.protocol.topics import IsolationLevel

GROUPS_KEPT = 1000
"""How many groups' settings are kept parsed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShareGroupSettings:
    """What holds for one share group: its own settings, or else those of the broker.

    Each request looks them up several times: they are the same object while nothing changes.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    record_lock_duration_ms: int
    delivery_count_limit: int
    partition_max_record_locks: int
    auto_offset_reset: ResetPolicy
    """Where a share partition begins that has no start offset yet."""
    isolation_level: IsolationLevel
    renew_acknowledge_enable: bool
    """Whether a member may renew the lock of a record (KIP-1222)."""
    dead_letter_topic: str | None
    """Where records go that are given up (KIP-1191); None to drop them."""
    dead_letter_copy_record: bool
    """Whether the whole record goes there, or only the headers that say where it was."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShareGroupConfig:
    """The broker's settings of share groups; the defaults are Kafka's."""

    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_max_size: int = 200
    group_share_assignment_interval_ms: int = 1_000
    group_share_initialize_retry_interval_ms: int = 30_000
    """How long a share partition may be in initialization before a heartbeat begins it again."""
    group_share_record_lock_duration_ms: int = 30_000
    group_share_delivery_count_limit: int = 5
    group_share_partition_max_record_locks: int = 2_000
    group_share_max_share_sessions: int = 2_000
    group_share_bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The lowest and highest value of each setting of a single group, by its name (`share.session.timeout.ms`, ...)."""

    def of_group(self, configs: Mapping[str, str]) -> ShareGroupSettings:
        """The settings of a group that has set `configs` for itself.

        As `GroupConfig.evaluate`: a value that was set under other bounds is clamped to those of now.
        """
        return _of_group(self, frozenset(configs.items()))


@lru_cache(maxsize=GROUPS_KEPT)
def _of_group(config: ShareGroupConfig, configs: frozenset[tuple[str, str]]) -> ShareGroupSettings:
    own = {name: text.strip() for name, text in configs}

    def number(name: str, default: int) -> int:
        if name not in own:
            return default
        value = int(own[name])
        low, high = config.group_share_bounds.get(name, (value, value))
        return min(max(value, low), high)

    return ShareGroupSettings(
        session_timeout_ms=number("share.session.timeout.ms", config.group_share_session_timeout_ms),
        heartbeat_interval_ms=number("share.heartbeat.interval.ms", config.group_share_heartbeat_interval_ms),
        assignment_interval_ms=number("share.assignment.interval.ms", config.group_share_assignment_interval_ms),
        record_lock_duration_ms=number("share.record.lock.duration.ms", config.group_share_record_lock_duration_ms),
        delivery_count_limit=number("share.delivery.count.limit", config.group_share_delivery_count_limit),
        partition_max_record_locks=number(
            "share.partition.max.record.locks", config.group_share_partition_max_record_locks
        ),
        auto_offset_reset=parse_reset(own.get("share.auto.offset.reset", "latest")),
        isolation_level=IsolationLevel[own.get("share.isolation.level", "read_uncommitted").upper()],
        renew_acknowledge_enable=own.get("share.renew.acknowledge.enable", "true").lower() == "true",
        dead_letter_topic=own.get("errors.deadletterqueue.topic.name") or None,
        dead_letter_copy_record=own.get("errors.deadletterqueue.copy.record.enable", "false").lower() == "true",
    )
