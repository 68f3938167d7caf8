"""The settings of consumer protocol groups (KIP-848); names, defaults and bounds are Kafka's unless noted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fencepost.broker.config.fields import Kind, Update, setting

INT_MAX = 2**31 - 1
ASSIGNORS = ("uniform", "range")
PROTOCOLS = ("classic", "consumer")
PROTOCOLS_TAKEN = (*PROTOCOLS, "share", "streams")
POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


def _assignors_problem(names: tuple[str, ...]) -> str | None:
    if names and len(set(names)) == len(names):
        return None
    return "must name at least one assignor, and none twice"


def _protocols_problem(names: tuple[str, ...]) -> str | None:
    return None if "classic" in names else "must contain classic: that protocol cannot be disabled"


def _policy_problem(policy: str) -> str | None:
    return None if policy.lower() in POLICIES else f"{policy!r} is not allowed, expected one of {', '.join(POLICIES)}"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ConsumerGroupSettings:
    """The settings that the broker, not the member, decides in the consumer protocol."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        Kind.LIST, PROTOCOLS, "The rebalance protocols that are enabled, of classic and consumer.",
        choices=PROTOCOLS_TAKEN, check=_protocols_problem,
    )  # fmt: skip
    group_consumer_session_timeout_ms: int = setting(
        Kind.INT, 45_000, "Silence after which a member is put out.", low=1
    )
    group_consumer_min_session_timeout_ms: int = setting(Kind.INT, 45_000, "The shortest session allowed.", low=1)
    group_consumer_max_session_timeout_ms: int = setting(Kind.INT, 60_000, "The longest session allowed.", low=1)
    group_consumer_heartbeat_interval_ms: int = setting(
        Kind.INT, 5000, "How often members must send a heartbeat.", low=1
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(Kind.INT, 5000, "The shortest interval allowed.", low=1)
    group_consumer_max_heartbeat_interval_ms: int = setting(Kind.INT, 15_000, "The longest interval allowed.", low=1)
    group_consumer_max_size: int = setting(Kind.INT, INT_MAX, "The most members a group may have.", low=1)
    group_consumer_assignors: tuple[str, ...] = setting(
        Kind.LIST, ASSIGNORS, "The assignors that members may ask for. The first is the default.", choices=ASSIGNORS,
        check=_assignors_problem,
    )  # fmt: skip
    group_consumer_assignment_interval_ms: int = setting(
        Kind.INT, 0, "How long a target assignment stands before the next one is made (Kafka: 1000).", low=0,
        update=Update.CLUSTER_WIDE,
    )  # fmt: skip
    group_consumer_min_assignment_interval_ms: int = setting(Kind.INT, 0, "The shortest such time allowed.", low=0)
    group_consumer_max_assignment_interval_ms: int = setting(Kind.INT, 15_000, "The longest such time allowed.", low=0)
    group_consumer_migration_policy: str = setting(
        Kind.STRING, "bidirectional",
        "Which ways a group with members may go between the protocols: bidirectional, upgrade, downgrade, disabled.",
        check=_policy_problem,
    )  # fmt: skip
    group_consumer_regex_refresh_interval_ms: int = setting(
        Kind.INT, 600_000, "How often topics are matched with subscribed expressions, where none were created.",
        low=10_000,
    )  # fmt: skip


_BOUNDED = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")


def problem(get: Callable[[str], Any]) -> str | None:
    """What is wrong with these settings taken together, or None."""
    for name in _BOUNDED:
        chosen, low, high = f"group.consumer.{name}", f"group.consumer.min.{name}", f"group.consumer.max.{name}"
        if get(high) < get(low):
            return f"{high} must be greater than or equal to {low}"
        if get(chosen) < get(low):
            return f"{chosen} must be greater than or equal to {low}"
        if get(chosen) > get(high):
            return f"{chosen} must be less than or equal to {high}"
    if get("group.consumer.heartbeat.interval.ms") >= get("group.consumer.session.timeout.ms"):
        return "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms"
    return None


def group_bounds(config: ConsumerGroupSettings) -> dict[str, tuple[int, int]]:
    """The lowest and highest value of each setting of a group, by the group setting's name."""
    return {
        f"consumer.{name}": (
            getattr(config, f"group_consumer_min_{name.replace('.', '_')}"),
            getattr(config, f"group_consumer_max_{name.replace('.', '_')}"),
        )
        for name in _BOUNDED
    }
