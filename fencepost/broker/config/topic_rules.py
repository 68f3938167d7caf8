"""The declared settings for the metadata controller, and the settings of each part of the broker."""

import dataclasses
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from fencepost.broker.config.broker_config import BOUNDED, SETTINGS, BrokerConfig, dynamic_problem
from fencepost.broker.config.checks import super_users
from fencepost.broker.config.fields import Kind
from fencepost.broker.config.topic_config import Dynamic, chain, effective, topic_problem
from fencepost.broker.config.topic_settings import TOPIC_SETTINGS
from fencepost.broker.ports import Broker
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.rates import Windows
from fencepost.coordinator.metadata.commands import Outcome
from fencepost.coordinator.metadata.image import EMPTY_IMAGE, NOTHING, TRANSACTION_VERSION, MetadataImage
from fencepost.coordinator.metadata.ports import Bounds, ClusterFacts
from fencepost.protocol.admin_enums import ConfigResourceType

if TYPE_CHECKING:
    from fencepost.broker.log.compaction.cleaner import CleanerSettings
    from fencepost.broker.log.config import LogConfig
    from fencepost.coordinator.group.config import GroupConfig
    from fencepost.coordinator.share.config import ShareStateConfig
    from fencepost.coordinator.share.group_config import ShareGroupConfig
    from fencepost.coordinator.txn.config import TxnConfig

logger = logging.getLogger(__name__)
LOG_CONFIGS_KEPT = 1000


class TopicRules:
    """The `ConfigRules` of a broker that was started with `config`."""

    def __init__(self, config: BrokerConfig) -> None:
        self.started_with = config
        """The configuration at the start, without later changes."""
        self._log_configs: dict[tuple[Any, ...], LogConfig] = {}

    def dynamic(self, image: MetadataImage) -> Dynamic:
        return Dynamic(image.broker_config(str(self.started_with.node_id)), image.broker_config(""))

    def broker_config(self, image: MetadataImage) -> BrokerConfig:
        """The configuration at the start, overridden by the settings altered since."""
        node, cluster = self.dynamic(image)
        return self.started_with.with_dynamic(cluster, node) if node or cluster else self.started_with

    def topic_problem(self, configs: Mapping[str, str]) -> str | None:
        return topic_problem(configs)

    def group_problem(self, configs: Mapping[str, str]) -> str | None:
        from fencepost.broker.config.group_settings import group_problem  # here: it is rarely used

        return group_problem(configs, self.started_with)

    def client_metrics_problem(self, configs: Mapping[str, str]) -> Outcome | None:
        from fencepost.broker.config.client_metrics import metrics_problem  # here: it is rarely used

        return metrics_problem(configs)

    def broker_problem(self, name: str, configs: Mapping[str, str | None]) -> str | None:
        problems = (dynamic_problem(setting, text, for_all=not name) for setting, text in configs.items())
        return next((problem for problem in problems if problem is not None), None)

    def is_list(self, kind: ConfigResourceType, name: str) -> bool:
        if kind is ConfigResourceType.TOPIC:
            return name in TOPIC_SETTINGS and TOPIC_SETTINGS[name].setting.kind is Kind.LIST
        return kind is ConfigResourceType.BROKER and name in SETTINGS and SETTINGS[name].kind is Kind.LIST

    def default_text(self, image: MetadataImage, kind: ConfigResourceType, name: str) -> str | None:
        """The effective value for a topic without an override; for a broker, its value at the start."""
        if kind is ConfigResourceType.TOPIC:
            return chain(name, NOTHING, self.started_with, self.dynamic(image))[0].value
        return self.started_with.text(name)

    def log_config(self, image: MetadataImage, topic: str) -> "LogConfig":
        """The log settings of a topic; topics with equal settings share one object."""
        overrides, dynamic = image.topic_config(topic), self.dynamic(image)
        key = tuple(tuple(sorted(layer.items())) for layer in (overrides, *dynamic))
        found = self._log_configs.get(key)
        if found is None:
            if len(self._log_configs) >= LOG_CONFIGS_KEPT:
                self._log_configs.clear()
            found = self._log_configs[key] = log_config(self.started_with, overrides, dynamic)
        return found


def rules_of(node: "Broker") -> TopicRules:
    rules = node.metadata.rules
    assert isinstance(rules, TopicRules), "the node was built with other rules"
    return rules


def log_config(config: BrokerConfig, overrides: Mapping[str, str], dynamic: Dynamic) -> "LogConfig":
    """The log settings of a topic: its effective settings, and three of the broker's."""
    from fencepost.broker.log.config import LogConfig

    value: dict[str, Any] = effective(overrides, config, dynamic)
    dotted = {one.name: one.name.replace("_", ".") for one in dataclasses.fields(LogConfig)}
    own = {attribute: value[name] for attribute, name in dotted.items() if name in value}
    own["cleanup_policy"] = frozenset(own["cleanup_policy"])
    if value["internal.segment.bytes"] is not None:
        own["segment_bytes"] = value["internal.segment.bytes"]
    return LogConfig(
        **own,
        producer_id_expiration_ms=_now(config, dynamic, "producer.id.expiration.ms"),
        producer_ids_max=config.producer_ids_max,
        message_max_decompressed_bytes=_now(config, dynamic, "message.max.decompressed.bytes"),
        retention_spares_open_transactions=bool(_now(config, dynamic, "log.retention.spares.open.transactions")),
    )


def metadata_log_config(config: BrokerConfig) -> "LogConfig":
    """The settings of the metadata log: unlimited retention, and the batch size that KIP-868 allows."""
    from fencepost.broker.log.config import UNLIMITED, LogConfig

    return LogConfig(
        segment_bytes=config.metadata_log_segment_bytes,
        retention_ms=UNLIMITED,
        retention_bytes=UNLIMITED,
        cleanup_policy=frozenset(),
        max_message_bytes=4 * Bounds().append_bytes_max,
    )


def cleaner_settings(config: BrokerConfig) -> "CleanerSettings":
    from fencepost.broker.log.compaction.cleaner import CleanerSettings
    from fencepost.broker.log.compaction.cleaning import CleaningLimits

    return CleanerSettings(
        enabled=config.log_cleaner_enable,
        threads=config.log_cleaner_threads,
        backoff_ms=config.log_cleaner_backoff_ms,
        io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        limits=CleaningLimits(config.log_cleaner_dedupe_buffer_size, config.log_cleaner_io_buffer_load_factor),
    )


def cluster_facts(config: BrokerConfig, cluster_id: str, node_ids: tuple[int, ...] = ()) -> ClusterFacts:
    return ClusterFacts(
        cluster_id=cluster_id,
        node_id=config.node_id,
        node_ids=node_ids,
        default_partitions=config.num_partitions,
        auto_create_topics=config.auto_create_topics_enable,
        delete_topics=config.delete_topic_enable,
        offsets_partitions=config.offsets_topic_num_partitions,
        transaction_partitions=config.transaction_state_log_num_partitions,
        offsets_segment_bytes=config.offsets_topic_segment_bytes,
        transaction_segment_bytes=config.transaction_state_log_segment_bytes,
    )


def group_config(config: BrokerConfig) -> "GroupConfig":
    """The group coordinator's settings, under the same names."""
    from fencepost.coordinator.group.config import GroupConfig

    own = {one.name for one in dataclasses.fields(GroupConfig)} - {"group_consumer_bounds"}
    values: dict[str, Any] = {name: getattr(config, name) for name in own}
    values["group_consumer_migration_policy"] = config.group_consumer_migration_policy.lower()
    return GroupConfig(**values, group_consumer_bounds=_group_bounds(config, "consumer"))


def share_group_config(config: BrokerConfig) -> "ShareGroupConfig":
    """The settings of share groups, under the same names.

    As `GroupCoordinatorConfig.clampDynamicConfigs`: an assignment interval that was altered at run time is kept within
    the bounds of the start.
    """
    from fencepost.coordinator.share.group_config import ShareGroupConfig

    own = {one.name for one in dataclasses.fields(ShareGroupConfig)} - {"group_share_bounds"}
    values: dict[str, Any] = {name: getattr(config, name) for name in own}
    bounds = _group_bounds(config, "share")
    low, high = bounds["share.assignment.interval.ms"]
    values["group_share_assignment_interval_ms"] = min(max(config.group_share_assignment_interval_ms, low), high)
    return ShareGroupConfig(**values, group_share_bounds=bounds)


def share_state_config(config: BrokerConfig) -> "ShareStateConfig":
    """The share coordinator's settings, under the same names."""
    from fencepost.coordinator.share.config import ShareStateConfig

    own = {one.name for one in dataclasses.fields(ShareStateConfig)} - {"share_partitions_max"}
    return ShareStateConfig(**{name: getattr(config, name) for name in own})


def _group_bounds(config: BrokerConfig, kind: str) -> dict[str, tuple[int, int]]:
    """The lowest and highest value of each setting of a single group of this kind, by its name."""

    def bound(which: str, name: str) -> int:
        return cast(int, config.value(f"group.{kind}.{which}.{name}"))

    return {f"{kind}.{name}": (bound("min", name), bound("max", name)) for name in BOUNDED[kind]}


def make_authorizer(config: BrokerConfig, image: MetadataImage) -> Authorizer | None:
    """The authorizer of these settings with the ACLs of `image`; None if the settings name no authorizer."""
    if not config.authorizer_class_name:
        return None
    users, is_open = super_users(config.super_users), config.allow_everyone_if_no_acl_found
    if not (users or is_open or image.acls):
        logger.warning("no client has any right: there is no ACL and no super user; set super.users and start again")
    return Authorizer(image.acls.values(), users, allow_if_no_acl=is_open)


def txn_config(config: BrokerConfig, image: MetadataImage = EMPTY_IMAGE) -> "TxnConfig":
    """The transaction coordinator's settings, with the finalized level of `transaction.version`."""
    from fencepost.coordinator.txn.config import TxnConfig

    sweep_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
    return TxnConfig(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        transaction_state_log_num_partitions=config.transaction_state_log_num_partitions,
        offsets_topic_num_partitions=config.offsets_topic_num_partitions,
        transaction_version=image.features.get(TRANSACTION_VERSION, 0),
        transaction_partition_verification_enable=config.transaction_partition_verification_enable,
        transaction_two_phase_commit_enable=config.transaction_two_phase_commit_enable,
        timeout_check_interval_ms=min(sweep_ms, TxnConfig().timeout_check_interval_ms),
        principal_max_transactional_ids=config.principal_max_transactional_ids,
        principal_max_open_transactions=config.principal_max_open_transactions,
        principal_max_producer_ids=config.principal_max_producer_ids,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        id_expiration_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )


def quota_windows(config: BrokerConfig) -> tuple[Windows, Windows]:
    """The sampling of client quotas, and that of controller_mutation_rate."""
    return (
        Windows(config.quota_window_num, config.quota_window_size_seconds),
        Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds),
    )


def _now(config: BrokerConfig, dynamic: Dynamic, name: str) -> int:
    """A setting's current value: the one altered at run time, or else the one at the start."""
    text = dynamic.node.get(name, dynamic.cluster.get(name))
    return cast(int, config.value(name) if text is None else SETTINGS[name].parse(text))
