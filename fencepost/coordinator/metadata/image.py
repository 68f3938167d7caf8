"""The cluster at one offset of the metadata log: topics, settings, features, producer ids; replaced, never changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from fencepost.coordinator.metadata.topic_names import is_internal

FIRST_PRODUCER_ID = 1
"""Kafka starts at 0; 0 is left out here so that it can never be a producer's (kafka-rules 0.23)."""
METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
"""1: groups of the consumer protocol (KIP-848)."""


class ResourceType(IntEnum):
    """What a configuration belongs to, under the numbers of the configuration APIs."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigResource(NamedTuple):
    """A topic, a group, one broker (its id as text), or all brokers (BROKER and an empty name)."""

    type: ResourceType
    name: str


class PartitionImage(NamedTuple):
    """Who holds and who leads one partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; `topic_id` is 16 bytes, `configs` is what was set on it, `assignment` has one entry per partition."""

    name: str
    topic_id: bytes
    assignment: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=lambda: NOTHING)

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return len(self.assignment)

    @property
    def internal(self) -> bool:
        """Whether the topic is the broker's own."""
        return is_internal(self.name)


NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The cluster's metadata up to, not including, `offset` of the metadata log."""

    offset: int = 0
    topics_by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = FIRST_PRODUCER_ID

    def topic_config(self, name: str) -> Mapping[str, str]:
        """What was set on a topic."""
        return self.configs.get(ConfigResource(ResourceType.TOPIC, name), NOTHING)

    def group_config(self, group_id: str) -> Mapping[str, str]:
        """What was set at run time on a group."""
        return self.configs.get(ConfigResource(ResourceType.GROUP, group_id), NOTHING)

    def broker_config(self, name: str) -> Mapping[str, str]:
        """What was set at run time on a broker, or, for an empty name, on all."""
        return self.configs.get(ConfigResource(ResourceType.BROKER, name), NOTHING)


EMPTY_IMAGE = MetadataImage()
