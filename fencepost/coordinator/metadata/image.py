"""The cluster at one offset of the metadata log: topics, settings, features, access; immutable."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from fencepost.coordinator.metadata.topic_names import is_internal
from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.metadata_record_types import RegisterBrokerRecord, RegisterControllerRecord

FIRST_PRODUCER_ID = 1
"""Kafka starts at 0; fencepost never allocates 0 (kafka-rules 0.23)."""
METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
"""1: groups of the consumer protocol (KIP-848)."""
SHARE_VERSION = "share.version"
"""1: share groups (KIP-932). 2: their dead-letter topics (KIP-1191)."""


STORED_RESOURCES = frozenset(ConfigResourceType) - {ConfigResourceType.BROKER_LOGGER}
"""The resource types whose settings the metadata keeps. Levels of loggers end with the process."""


class ConfigResource(NamedTuple):
    """A topic, a group, a subscription of client metrics, one broker (its id as text), or all (BROKER, no name)."""

    type: ConfigResourceType
    name: str


class PartitionImage(NamedTuple):
    """The replicas and the leader of one partition; `directories` has one entry for each replica, or is empty.

    The fields are those of a PartitionRecord after partition and topic id, in its order.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader: int = -1
    leader_recovery_state: int = 0
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[bytes, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic; `topic_id` is 16 bytes, `configs` are its own settings, `assignment` has one entry per partition."""

    name: str
    topic_id: bytes
    assignment: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=lambda: NOTHING)

    @property
    def partitions(self) -> int:
        return len(self.assignment)

    @property
    def internal(self) -> bool:
        return is_internal(self.name)


NOTHING: Mapping[str, str] = MappingProxyType({})


class Acl(NamedTuple):
    """An ACL: the fields of an AccessControlEntryRecord after its id."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class ScramUser(NamedTuple):
    """A user's password for one SCRAM mechanism (1: SHA-256, 2: SHA-512)."""

    name: str
    mechanism: int


class ScramCredential(NamedTuple):
    """The data to verify a password, which does not reveal it: a UserScramCredentialRecord without its ScramUser."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, ...)"


QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: (type, name) pairs by type; a name of None is the default of its type."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The cluster's metadata up to, not including, `offset` of the metadata log."""

    offset: int = 0
    topics_by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = FIRST_PRODUCER_ID
    brokers: Mapping[int, RegisterBrokerRecord] = field(default_factory=dict)
    """The current registrations by broker id."""
    controllers: Mapping[int, RegisterControllerRecord] = field(default_factory=dict)
    acls: Mapping[bytes, Acl] = field(default_factory=dict)
    """By their 16-byte ids."""
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    scram: Mapping[ScramUser, ScramCredential] = field(default_factory=dict)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The topic's own settings."""
        return self.configs.get(ConfigResource(ConfigResourceType.TOPIC, name), NOTHING)

    def group_config(self, group_id: str) -> Mapping[str, str]:
        """The group's own settings, set at run time."""
        return self.configs.get(ConfigResource(ConfigResourceType.GROUP, group_id), NOTHING)

    def client_metrics_config(self, name: str) -> Mapping[str, str]:
        """The settings of a subscription of client metrics (KIP-714), set at run time."""
        return self.configs.get(ConfigResource(ConfigResourceType.CLIENT_METRICS, name), NOTHING)

    def broker_config(self, name: str) -> Mapping[str, str]:
        """The settings of a broker, or, for an empty name, of all brokers, set at run time."""
        return self.configs.get(ConfigResource(ConfigResourceType.BROKER, name), NOTHING)


EMPTY_IMAGE = MetadataImage()
