"""The records of the metadata log as values; `metadata_records.py` knows their bytes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

UNASSIGNED_DIRECTORY = bytes(16)
"""The directory of a replica that was not placed in one yet (KIP-858)."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic came to be (2); `topic_id` is 16 bytes."""

    name: str
    topic_id: bytes


class PartitionRecord(NamedTuple):
    """A partition came to be (3): its replicas, who leads, and the directory of each replica."""

    partition_id: int
    topic_id: bytes
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    directories: tuple[bytes, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A setting of a topic (resource type 2) or of brokers (4; an empty name means all); None takes it away (4)."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic went, with its partitions and settings (9)."""

    topic_id: bytes


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """A feature was finalized at a level; 0 takes it away (12)."""

    name: str
    feature_level: int


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """A block of producer ids was handed out (15); `next_producer_id` is the first one of the next block."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class NoOpRecord:
    """Nothing (20)."""


@dataclass(frozen=True, slots=True)
class BeginTransactionRecord:
    """What follows counts only if the transaction ends (23, KIP-868)."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class EndTransactionRecord:
    """What came since the Begin counts from here on (24, KIP-868)."""


@dataclass(frozen=True, slots=True)
class AbortTransactionRecord:
    """What came since the Begin never counts (25, KIP-868)."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """Something about a partition changed (5); None, -2 for the leader and -1 for the recovery state: it did not."""

    partition_id: int
    topic_id: bytes
    isr: tuple[int, ...] | None = None
    leader: int = -2
    replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int = -1
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    directories: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class ClearElrRecord:
    """The eligible leader replicas of a topic count no more (28, KIP-966); an empty name means all topics."""

    topic_name: str


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """Where a broker can be reached; `security_protocol` 0 is PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class BrokerFeature:
    """Between which levels a broker supports a feature."""

    name: str
    min_supported_version: int
    max_supported_version: int


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord:
    """A broker came (0); `broker_epoch` numbers its lives, `incarnation_id` (16 bytes) names this one."""

    broker_id: int
    incarnation_id: bytes
    broker_epoch: int
    end_points: tuple[BrokerEndpoint, ...] = ()
    features: tuple[BrokerFeature, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    is_migrating_zk_broker: bool = False


@dataclass(frozen=True, slots=True)
class RegisterControllerRecord:
    """A controller came (27)."""

    controller_id: int
    incarnation_id: bytes
    zk_migration_ready: bool = False
    end_points: tuple[BrokerEndpoint, ...] = ()
    features: tuple[BrokerFeature, ...] = ()


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRecord:
    """A broker went for good (1)."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class FenceBrokerRecord:
    """A broker is not to be used (7)."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class UnfenceBrokerRecord:
    """A broker may be used again (8)."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class BrokerRegistrationChangeRecord:
    """Something about a broker changed (17). `fenced`: 1 it is now, -1 it is not any more, 0 as it was."""

    broker_id: int
    broker_epoch: int
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class UserScramCredentialRecord:
    """What a user's password is checked by (11); `mechanism` 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class RemoveUserScramCredentialRecord:
    """A user's password of one mechanism went (22)."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """One part of whom a quota is for; a name of None means the default of the type (user, client-id, ip)."""

    entity_type: str
    entity_name: str | None


@dataclass(frozen=True, slots=True)
class ClientQuotaRecord:
    """A quota was set, or taken away (14); all parts of `entity` together are whom it is for."""

    entity: tuple[QuotaEntity, ...]
    key: str
    value: float
    remove: bool = False


@dataclass(frozen=True, slots=True)
class AccessControlEntryRecord:
    """An ACL came to be (18); the numbers are those of Kafka's ACL requests, `id` is 16 bytes."""

    id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntryRecord:
    """An ACL went (19)."""

    id: bytes


class PartitionRun(NamedTuple):
    """`length` PartitionRecords of one topic, from `first.partition_id` on, that differ in their number only.

    They stand in the log as so many records: this is how they are held in memory, where there may be a million.
    """

    first: PartitionRecord
    length: int

    def records(self) -> Iterator[PartitionRecord]:
        """One by one."""
        for number in range(self.first.partition_id, self.first.partition_id + self.length):
            yield self.first._replace(partition_id=number)

    def between(self, start: int, stop: int) -> "PartitionRun":
        """Those from place `start` to before place `stop`."""
        return PartitionRun(self.first._replace(partition_id=self.first.partition_id + start), stop - start)


MetadataRecord = (
    TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ClearElrRecord
    | ConfigRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | RegisterBrokerRecord
    | RegisterControllerRecord
    | UnregisterBrokerRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | BrokerRegistrationChangeRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | ClientQuotaRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
)
MetadataEntry = MetadataRecord | PartitionRun
"""What is handled as one: a record, or a run of them."""


def record_count(entries: Iterable[MetadataEntry]) -> int:
    """How many records stand in the log for these."""
    return sum(entry.length if isinstance(entry, PartitionRun) else 1 for entry in entries)
