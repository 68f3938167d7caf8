"""What changed between two images of the metadata, as a value that observers are handed."""

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.coordinator.metadata.image import MetadataImage, QuotaEntity, ScramUser, TopicImage


class MetadataCorrupt(Exception):
    """The metadata log holds a record that cannot follow the ones before it; names the offset and the reason."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"metadata log at offset {offset}: {why}")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic is there."""

    topic: TopicImage


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic went; `topic` is what it was."""

    topic: TopicImage


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic grew from `before` partitions to `topic.partitions`."""

    topic: TopicImage
    before: int


@dataclass(frozen=True, slots=True)
class TopicConfigChanged:
    """Something was set on, or taken off, a topic."""

    topic: TopicImage


@dataclass(frozen=True, slots=True)
class BrokerConfigChanged:
    """Something was set on, or taken off, a broker; an empty name means all brokers."""

    name: str


@dataclass(frozen=True, slots=True)
class FeaturesChanged:
    """A feature was finalized at another level."""

    features: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """A broker came, went, or is registered otherwise."""

    ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class AclsChanged:
    """ACLs came and went, by their ids."""

    added: frozenset[bytes]
    removed: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class QuotasChanged:
    """Quotas of these were set or taken away."""

    entities: frozenset[QuotaEntity]


@dataclass(frozen=True, slots=True)
class ScramUsersChanged:
    """Passwords were set or taken away."""

    users: frozenset[ScramUser]


Change = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | TopicConfigChanged
    | BrokerConfigChanged
    | FeaturesChanged
    | BrokersChanged
    | AclsChanged
    | QuotasChanged
    | ScramUsersChanged
)
"""What an observer of the metadata is told once it is durable."""


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """One step of what may be seen: from an image to the next, and what is different in it.

    Both images end where nothing is open: between two transactions, never inside one.
    """

    before: MetadataImage
    image: MetadataImage
    changes: tuple[Change, ...]
