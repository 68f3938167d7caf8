"""The changes between two images of the metadata, as a value for observers."""

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.coordinator.metadata.image import MetadataImage, QuotaEntity, ScramUser, TopicImage


class MetadataCorrupt(Exception):
    """A record of the metadata log contradicts the ones before it; the text names the offset and the reason."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"metadata log at offset {offset}: {why}")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic: TopicImage


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic was deleted; `topic` is its last state."""

    topic: TopicImage


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic grew from `before` partitions to `topic.partitions`."""

    topic: TopicImage
    before: int


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    """Partitions of a topic have another leader, or other replicas; `before` is the topic's last state."""

    topic: TopicImage
    before: TopicImage


@dataclass(frozen=True, slots=True)
class TopicConfigChanged:
    """A configuration of a topic was set or removed."""

    topic: TopicImage


@dataclass(frozen=True, slots=True)
class BrokerConfigChanged:
    """A configuration of a broker was set or removed; an empty name means all brokers."""

    name: str


@dataclass(frozen=True, slots=True)
class FeaturesChanged:
    """A feature was finalized at another level."""

    features: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Brokers were registered or unregistered, or their registration changed."""

    ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class AclsChanged:
    """ACLs were created or deleted, by their ids."""

    added: frozenset[bytes]
    removed: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class QuotasChanged:
    """Quotas of these entities were set or removed."""

    entities: frozenset[QuotaEntity]


@dataclass(frozen=True, slots=True)
class ScramUsersChanged:
    """SCRAM credentials were set or removed."""

    users: frozenset[ScramUser]


Change = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | AssignmentChanged
    | TopicConfigChanged
    | BrokerConfigChanged
    | FeaturesChanged
    | BrokersChanged
    | AclsChanged
    | QuotasChanged
    | ScramUsersChanged
)
"""A change that observers of the metadata receive once it is durable."""


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """One visible step of the metadata: an image, the next one, and the changes between them.

    Both images end between two transactions, never inside one.
    """

    before: MetadataImage
    image: MetadataImage
    changes: tuple[Change, ...]
