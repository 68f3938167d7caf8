"""The first records of a new cluster: its features and its internal topics; written as one KIP-868 transaction."""

from fencepost.coordinator.metadata.commands import NewTopic
from fencepost.coordinator.metadata.controller import TopicController
from fencepost.coordinator.metadata.features import BOOTSTRAP
from fencepost.coordinator.metadata.image import EMPTY_IMAGE
from fencepost.coordinator.metadata.ports import ClusterFacts
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_entries import MetadataEntry
from fencepost.protocol.metadata_record_types import FeatureLevelRecord
from fencepost.protocol.topics import GROUP_TOPIC, TRANSACTION_TOPIC


def internal_topics(facts: ClusterFacts) -> list[NewTopic]:
    """The two topics that the coordinators keep their state in, with Kafka's settings for them."""
    offsets = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(facts.offsets_segment_bytes),
    }
    transactions = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": str(facts.transaction_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
    return [
        NewTopic(GROUP_TOPIC, facts.offsets_partitions, configs=dict(offsets)),
        NewTopic(TRANSACTION_TOPIC, facts.transaction_partitions, configs=dict(transactions)),
    ]


def bootstrap_records(facts: ClusterFacts, topics: TopicController) -> list[MetadataEntry]:
    """metadata.version first of all (kafka-rules E.2), the other features, the internal topics."""
    created = topics.create_topics(EMPTY_IMAGE, internal_topics(facts))
    refused = [reply for reply in created.reply if reply.outcome.code is not ErrorCode.NONE]
    assert not refused, refused
    return [*(FeatureLevelRecord(name, level) for name, level in BOOTSTRAP.items()), *created.log]
