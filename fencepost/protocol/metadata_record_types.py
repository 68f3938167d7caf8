"""The records of the metadata log, declared; `metadata_records.py` reads and writes them."""

from typing import Annotated, Any, NamedTuple

from fencepost.protocol.metadata_schema import part, record
from fencepost.protocol.schema import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    Uint16,
    Uuid,
    field,
    since,
)


def changed(tag: int, since: int = 0) -> Any:
    """A list in a tagged field: null if it did not change or is unknown."""
    return field(since, default=None, tag=tag)


@part
class BrokerEndpoint(NamedTuple):
    """An address of a broker; `security_protocol` 0 is PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: String
    host: String
    port: Uint16
    security_protocol: Int16 = 0


@part
class BrokerFeature(NamedTuple):
    """The levels of a feature that a broker supports."""

    name: String
    min_supported_version: Int16
    max_supported_version: Int16


@record(0, versions=(0, 4), written=3)
class RegisterBrokerRecord(NamedTuple):
    """A broker registered; `broker_epoch` and `incarnation_id` (16 bytes) identify this run of its process."""

    broker_id: Int32
    is_migrating_zk_broker: Annotated[Bool, since(2)]
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: tuple[BrokerEndpoint, ...] = ()
    features: tuple[BrokerFeature, ...] = ()
    rack: String | None = None
    fenced: Bool = True
    in_controlled_shutdown: Bool = since(1)
    log_dirs: tuple[Uuid, ...] = since(3, tag=0)
    cordoned_log_dirs: tuple[Uuid, ...] | None = changed(1, since=4)


@record(1)
class UnregisterBrokerRecord(NamedTuple):
    broker_id: Int32
    broker_epoch: Int64


@record(2)
class TopicRecord(NamedTuple):
    """A topic was created; `topic_id` is 16 bytes."""

    name: String
    topic_id: Uuid


@record(3, versions=(0, 2), written=1)
class PartitionRecord(NamedTuple):
    """A partition was created: its replicas, its leader, and the directory of each replica."""

    partition_id: Int32
    topic_id: Uuid
    replicas: tuple[Int32, ...]
    isr: tuple[Int32, ...]
    removing_replicas: tuple[Int32, ...] = ()
    adding_replicas: tuple[Int32, ...] = ()
    leader: Int32 = -1
    leader_recovery_state: Int8 = field(tag=0)
    leader_epoch: Int32 = 0
    partition_epoch: Int32 = 0
    directories: tuple[Uuid, ...] = since(1)
    eligible_leader_replicas: tuple[Int32, ...] | None = changed(1, since=2)
    last_known_elr: tuple[Int32, ...] | None = changed(2, since=2)


@record(4)
class ConfigRecord(NamedTuple):
    """A setting of a topic (resource type 2) or of brokers (4; an empty name means all); None removes it."""

    resource_type: Int8
    resource_name: String
    name: String
    value: String | None = None


@record(5, versions=(0, 2), written=1)
class PartitionChangeRecord(NamedTuple):
    """A partition changed. Unchanged fields are None; -2 for the leader, -1 for the recovery state."""

    partition_id: Int32
    topic_id: Uuid
    isr: tuple[Int32, ...] | None = changed(0)
    leader: Int32 = field(default=-2, tag=1)
    replicas: tuple[Int32, ...] | None = changed(2)
    removing_replicas: tuple[Int32, ...] | None = changed(3)
    adding_replicas: tuple[Int32, ...] | None = changed(4)
    leader_recovery_state: Int8 = field(default=-1, tag=5)
    eligible_leader_replicas: tuple[Int32, ...] | None = changed(6, since=2)
    last_known_elr: tuple[Int32, ...] | None = changed(7, since=2)
    directories: tuple[Uuid, ...] | None = changed(8, since=1)


@record(7)
class FenceBrokerRecord(NamedTuple):
    id: Int32
    epoch: Int64


@record(8)
class UnfenceBrokerRecord(NamedTuple):
    id: Int32
    epoch: Int64


@record(9)
class RemoveTopicRecord(NamedTuple):
    topic_id: Uuid


@record(11)
class UserScramCredentialRecord(NamedTuple):
    """The data to verify a user's password; `mechanism` 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    name: String
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


@record(12)
class FeatureLevelRecord(NamedTuple):
    """A feature was finalized at a level; 0 removes it."""

    name: String
    feature_level: Int16


@part
class QuotaEntity(NamedTuple):
    """One part of a quota's entity; a name of None means the default of the type (user, client-id, ip)."""

    entity_type: String
    entity_name: String | None = None


@record(14)
class ClientQuotaRecord(NamedTuple):
    entity: tuple[QuotaEntity, ...]
    key: String
    value: Float64
    remove: Bool = False


@record(15)
class ProducerIdsRecord(NamedTuple):
    """A block of producer ids was allocated; `next_producer_id` is the first one of the next block."""

    broker_id: Int32
    broker_epoch: Int64
    next_producer_id: Int64


@record(17, versions=(0, 3), written=2)
class BrokerRegistrationChangeRecord(NamedTuple):
    """A broker's registration changed. `fenced`: 1 it was fenced, -1 it was unfenced, 0 unchanged."""

    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = field(tag=0)
    in_controlled_shutdown: Int8 = since(1, tag=1)
    log_dirs: tuple[Uuid, ...] = since(2, tag=2)
    cordoned_log_dirs: tuple[Uuid, ...] | None = changed(3, since=3)


@record(18)
class AccessControlEntryRecord(NamedTuple):
    """An ACL was created; the numbers are those of Kafka's ACL requests, `id` is 16 bytes."""

    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@record(19)
class RemoveAccessControlEntryRecord(NamedTuple):
    id: Uuid


@record(20)
class NoOpRecord(NamedTuple):
    """No change."""


@record(22)
class RemoveUserScramCredentialRecord(NamedTuple):
    name: String
    mechanism: Int8


@record(23)
class BeginTransactionRecord(NamedTuple):
    """A transaction begins: the records after it count only if the transaction ends (KIP-868)."""

    name: String | None = field(default=None, tag=0)


@record(24)
class EndTransactionRecord(NamedTuple):
    """The records since the Begin count from here on (KIP-868)."""


@record(25)
class AbortTransactionRecord(NamedTuple):
    """The records since the Begin never count (KIP-868)."""

    reason: String | None = field(default=None, tag=0)


@record(27)
class RegisterControllerRecord(NamedTuple):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool = False
    end_points: tuple[BrokerEndpoint, ...] = ()
    features: tuple[BrokerFeature, ...] = ()


@record(28)
class ClearElrRecord(NamedTuple):
    """The eligible leader replicas of a topic were cleared (KIP-966); an empty name means all topics."""

    topic_name: String


MetadataRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | RemoveUserScramCredentialRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RegisterControllerRecord
    | ClearElrRecord
)
"""Any metadata record."""
