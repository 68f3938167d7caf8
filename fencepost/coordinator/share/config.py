"""The settings of the share coordinator, under Kafka's names (ShareCoordinatorConfig), and those of its topic."""

from dataclasses import dataclass

from fencepost.coordinator.metadata.commands import NewTopic
from fencepost.protocol.topics import SHARE_STATE_TOPIC


@dataclass(frozen=True, slots=True)
class ShareStateConfig:
    """Settings of the share coordinator."""

    share_coordinator_state_topic_num_partitions: int = 50
    """Must not change once the topic exists: share partitions would be looked for where they are not."""
    share_coordinator_state_topic_segment_bytes: int = 100 << 20
    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    """After this many updates of a share partition its next change is written as a snapshot."""
    share_coordinator_cold_partition_snapshot_interval_ms: int = 300_000
    """A share partition whose last snapshot is older gets a new one, so that the records before it can go."""
    share_coordinator_state_topic_prune_interval_ms: int = 300_000
    """How often records are deleted that no share partition needs any more."""
    share_partitions_max: int = 1_000_000
    """The most share partitions of this broker; a further one is refused with POLICY_VIOLATION."""


def state_topic(config: ShareStateConfig) -> NewTopic:
    """The internal topic, with Kafka's settings for it (ShareCoordinatorService.shareGroupStateTopicConfigs).

    It is not compacted: an update does not replace the one before it. Pruning deletes its records.
    """
    return NewTopic(
        SHARE_STATE_TOPIC,
        config.share_coordinator_state_topic_num_partitions,
        configs={
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": "1",
            "retention.ms": "-1",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
        },
    )
