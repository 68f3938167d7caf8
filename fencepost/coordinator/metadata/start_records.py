"""The records of a start: the first of a new cluster, and the registration of a broker (KIP-631). Pure."""

from dataclasses import dataclass

from fencepost.coordinator.metadata.commands import NewTopic
from fencepost.coordinator.metadata.controller import TopicController
from fencepost.coordinator.metadata.features import SUPPORTED, bootstrap_levels
from fencepost.coordinator.metadata.image import EMPTY_IMAGE
from fencepost.coordinator.metadata.ports import ClusterFacts
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_entries import MetadataEntry
from fencepost.protocol.metadata_record_types import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)
from fencepost.protocol.topics import GROUP_TOPIC, TRANSACTION_TOPIC


@dataclass(frozen=True, slots=True)
class Registration:
    """One run of a broker process: `incarnation_id` (16 bytes) names it, clients connect to its `end_points`."""

    incarnation_id: bytes
    end_points: tuple[BrokerEndpoint, ...]
    rack: str | None = None


def registration_record(facts: ClusterFacts, one: Registration, epoch: int) -> RegisterBrokerRecord:
    """The record at offset `epoch`, which is the broker epoch, as in Kafka.

    It is not fenced: no remote controller has to receive a heartbeat first. It has no log directories: they have no ids
    here.
    """
    features = tuple(BrokerFeature(name, *levels) for name, levels in sorted(SUPPORTED.items()))
    return RegisterBrokerRecord(
        facts.node_id, False, one.incarnation_id, epoch, one.end_points, features, one.rack, fenced=False
    )


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
        NewTopic(GROUP_TOPIC, facts.offsets_partitions, configs=offsets),
        NewTopic(TRANSACTION_TOPIC, facts.transaction_partitions, configs=transactions),
    ]


def bootstrap_records(facts: ClusterFacts, topics: TopicController) -> list[MetadataEntry]:
    """The first records of a cluster, written as one KIP-868 transaction.

    metadata.version first of all (kafka-rules E.2), the other features, the internal topics.
    """
    created = topics.create_topics(EMPTY_IMAGE, internal_topics(facts))
    refused = [reply for reply in created.reply if reply.outcome.code is not ErrorCode.NONE]
    assert not refused, refused
    return [*(FeatureLevelRecord(name, level) for name, level in bootstrap_levels().items()), *created.log]
