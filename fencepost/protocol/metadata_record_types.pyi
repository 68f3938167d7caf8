"""Written by tests/architecture/message_stubs.py from the declarations in metadata_record_types.py."""

from typing import NamedTuple

class BrokerEndpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int = ...

class BrokerFeature(NamedTuple):
    name: str
    min_supported_version: int
    max_supported_version: int

class RegisterBrokerRecord(NamedTuple):
    broker_id: int
    is_migrating_zk_broker: bool
    incarnation_id: bytes
    broker_epoch: int
    end_points: tuple[BrokerEndpoint, ...] = ...
    features: tuple[BrokerFeature, ...] = ...
    rack: str | None = ...
    fenced: bool = ...
    in_controlled_shutdown: bool = ...
    log_dirs: tuple[bytes, ...] = ...
    cordoned_log_dirs: tuple[bytes, ...] | None = ...

class UnregisterBrokerRecord(NamedTuple):
    broker_id: int
    broker_epoch: int

class TopicRecord(NamedTuple):
    name: str
    topic_id: bytes

class PartitionRecord(NamedTuple):
    partition_id: int
    topic_id: bytes
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ...
    adding_replicas: tuple[int, ...] = ...
    leader: int = ...
    leader_recovery_state: int = ...
    leader_epoch: int = ...
    partition_epoch: int = ...
    directories: tuple[bytes, ...] = ...
    eligible_leader_replicas: tuple[int, ...] | None = ...
    last_known_elr: tuple[int, ...] | None = ...

class ConfigRecord(NamedTuple):
    resource_type: int
    resource_name: str
    name: str
    value: str | None = ...

class PartitionChangeRecord(NamedTuple):
    partition_id: int
    topic_id: bytes
    isr: tuple[int, ...] | None = ...
    leader: int = ...
    replicas: tuple[int, ...] | None = ...
    removing_replicas: tuple[int, ...] | None = ...
    adding_replicas: tuple[int, ...] | None = ...
    leader_recovery_state: int = ...
    eligible_leader_replicas: tuple[int, ...] | None = ...
    last_known_elr: tuple[int, ...] | None = ...
    directories: tuple[bytes, ...] | None = ...

class FenceBrokerRecord(NamedTuple):
    id: int
    epoch: int

class UnfenceBrokerRecord(NamedTuple):
    id: int
    epoch: int

class RemoveTopicRecord(NamedTuple):
    topic_id: bytes

class UserScramCredentialRecord(NamedTuple):
    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

class FeatureLevelRecord(NamedTuple):
    name: str
    feature_level: int

class QuotaEntity(NamedTuple):
    entity_type: str
    entity_name: str | None = ...

class ClientQuotaRecord(NamedTuple):
    entity: tuple[QuotaEntity, ...]
    key: str
    value: float
    remove: bool = ...

class ProducerIdsRecord(NamedTuple):
    broker_id: int
    broker_epoch: int
    next_producer_id: int

class BrokerRegistrationChangeRecord(NamedTuple):
    broker_id: int
    broker_epoch: int
    fenced: int = ...
    in_controlled_shutdown: int = ...
    log_dirs: tuple[bytes, ...] = ...
    cordoned_log_dirs: tuple[bytes, ...] | None = ...

class AccessControlEntryRecord(NamedTuple):
    id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

class RemoveAccessControlEntryRecord(NamedTuple):
    id: bytes

class NoOpRecord(NamedTuple):
    pass

class RemoveUserScramCredentialRecord(NamedTuple):
    name: str
    mechanism: int

class BeginTransactionRecord(NamedTuple):
    name: str | None = ...

class EndTransactionRecord(NamedTuple):
    pass

class AbortTransactionRecord(NamedTuple):
    reason: str | None = ...

class RegisterControllerRecord(NamedTuple):
    controller_id: int
    incarnation_id: bytes
    zk_migration_ready: bool = ...
    end_points: tuple[BrokerEndpoint, ...] = ...
    features: tuple[BrokerFeature, ...] = ...

class ClearElrRecord(NamedTuple):
    topic_name: str

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
