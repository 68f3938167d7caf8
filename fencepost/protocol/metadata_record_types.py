"""The records of the metadata log, declared; `metadata_records.py` reads and writes them."""

from functools import reduce
from operator import or_

from fencepost.protocol.metadata_schema import FORM_OF, Part, Record
from fencepost.protocol.schema import (
    Array,
    Bool,
    Bytes,
    Field,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Since,
    String,
    Uint16,
    Uuid,
)


def _changed(tag, kind, since=0):
    """A list in a tagged field: null if it did not change or is unknown."""
    return Field(Array(kind), since, nullable=since, default=None, tag=tag)


BrokerEndpoint = Part(
    "BrokerEndpoint",
    "name" / String,
    "host" / String,
    "port" / Uint16,
    "security_protocol" / Field(Int16),
)
"""An address of a broker; `security_protocol` 0 is PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

BrokerFeature = Part("BrokerFeature", "name" / String, "min_supported_version" / Int16, "max_supported_version" / Int16)
"""The levels of a feature that a broker supports."""

RegisterBrokerRecord = Record(
    0,
    "RegisterBrokerRecord",
    "broker_id" / Int32,
    "is_migrating_zk_broker" / Since(2, Bool),
    "incarnation_id" / Uuid,
    "broker_epoch" / Int64,
    "end_points" / Field(Array(BrokerEndpoint.wire)),
    "features" / Field(Array(BrokerFeature.wire)),
    "rack" / Field(String, nullable=0, default=None),
    "fenced" / Field(Bool, default=True),
    "in_controlled_shutdown" / Since(1, Bool),
    "log_dirs" / Field(Array(Uuid), 3, tag=0),
    "cordoned_log_dirs" / _changed(1, Uuid, 4),
    versions=(0, 4),
    written=3,
)
"""A broker registered; `broker_epoch` and `incarnation_id` (16 bytes) identify this run of its process."""

UnregisterBrokerRecord = Record(1, "UnregisterBrokerRecord", "broker_id" / Int32, "broker_epoch" / Int64)
"""A broker was unregistered."""

TopicRecord = Record(2, "TopicRecord", "name" / String, "topic_id" / Uuid)
"""A topic was created; `topic_id` is 16 bytes."""

PartitionRecord = Record(
    3,
    "PartitionRecord",
    "partition_id" / Int32,
    "topic_id" / Uuid,
    "replicas" / Array(Int32),
    "isr" / Array(Int32),
    "removing_replicas" / Field(Array(Int32)),
    "adding_replicas" / Field(Array(Int32)),
    "leader" / Field(Int32, default=-1),
    "leader_recovery_state" / Field(Int8, tag=0),
    "leader_epoch" / Field(Int32),
    "partition_epoch" / Field(Int32),
    "directories" / Since(1, Array(Uuid)),
    "eligible_leader_replicas" / _changed(1, Int32, 2),
    "last_known_elr" / _changed(2, Int32, 2),
    versions=(0, 2),
    written=1,
)
"""A partition was created: its replicas, its leader, and the directory of each replica."""

ConfigRecord = Record(
    4,
    "ConfigRecord",
    "resource_type" / Int8,
    "resource_name" / String,
    "name" / String,
    "value" / Field(String, nullable=0, default=None),
)
"""A setting of a topic (resource type 2) or of brokers (4; an empty name means all); None removes it."""

PartitionChangeRecord = Record(
    5,
    "PartitionChangeRecord",
    "partition_id" / Int32,
    "topic_id" / Uuid,
    "isr" / _changed(0, Int32),
    "leader" / Field(Int32, default=-2, tag=1),
    "replicas" / _changed(2, Int32),
    "removing_replicas" / _changed(3, Int32),
    "adding_replicas" / _changed(4, Int32),
    "leader_recovery_state" / Field(Int8, default=-1, tag=5),
    "eligible_leader_replicas" / _changed(6, Int32, 2),
    "last_known_elr" / _changed(7, Int32, 2),
    "directories" / _changed(8, Uuid, 1),
    versions=(0, 2),
    written=1,
)
"""A partition changed. Unchanged fields are None; -2 for the leader, -1 for the recovery state."""

FenceBrokerRecord = Record(7, "FenceBrokerRecord", "id" / Int32, "epoch" / Int64)
"""A broker was fenced."""

UnfenceBrokerRecord = Record(8, "UnfenceBrokerRecord", "id" / Int32, "epoch" / Int64)
"""A broker was unfenced."""

RemoveTopicRecord = Record(9, "RemoveTopicRecord", "topic_id" / Uuid)
"""A topic was deleted, with its partitions and settings."""

UserScramCredentialRecord = Record(
    11,
    "UserScramCredentialRecord",
    "name" / String,
    "mechanism" / Int8,
    "salt" / Bytes,
    "stored_key" / Bytes,
    "server_key" / Bytes,
    "iterations" / Int32,
)
"""The data to verify a user's password; `mechanism` 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""

FeatureLevelRecord = Record(12, "FeatureLevelRecord", "name" / String, "feature_level" / Int16)
"""A feature was finalized at a level; 0 removes it."""

QuotaEntity = Part("QuotaEntity", "entity_type" / String, "entity_name" / Field(String, nullable=0, default=None))
"""One part of a quota's entity; a name of None means the default of the type (user, client-id, ip)."""

ClientQuotaRecord = Record(
    14,
    "ClientQuotaRecord",
    "entity" / Array(QuotaEntity.wire),
    "key" / String,
    "value" / Float64,
    "remove" / Field(Bool),
)
"""A quota of `entity` was set or removed."""

ProducerIdsRecord = Record(
    15, "ProducerIdsRecord", "broker_id" / Int32, "broker_epoch" / Int64, "next_producer_id" / Int64
)
"""A block of producer ids was allocated; `next_producer_id` is the first one of the next block."""

BrokerRegistrationChangeRecord = Record(
    17,
    "BrokerRegistrationChangeRecord",
    "broker_id" / Int32,
    "broker_epoch" / Int64,
    "fenced" / Field(Int8, tag=0),
    "in_controlled_shutdown" / Field(Int8, 1, tag=1),
    "log_dirs" / Field(Array(Uuid), 2, tag=2),
    "cordoned_log_dirs" / _changed(3, Uuid, 3),
    versions=(0, 3),
    written=2,
)
"""A broker's registration changed. `fenced`: 1 it was fenced, -1 it was unfenced, 0 unchanged."""

AccessControlEntryRecord = Record(
    18,
    "AccessControlEntryRecord",
    "id" / Uuid,
    "resource_type" / Int8,
    "resource_name" / String,
    "pattern_type" / Int8,
    "principal" / String,
    "host" / String,
    "operation" / Int8,
    "permission_type" / Int8,
)
"""An ACL was created; the numbers are those of Kafka's ACL requests, `id` is 16 bytes."""

RemoveAccessControlEntryRecord = Record(19, "RemoveAccessControlEntryRecord", "id" / Uuid)
"""An ACL was deleted."""

NoOpRecord = Record(20, "NoOpRecord")
"""No change."""

RemoveUserScramCredentialRecord = Record(22, "RemoveUserScramCredentialRecord", "name" / String, "mechanism" / Int8)
"""A user's SCRAM credential of one mechanism was removed."""

BeginTransactionRecord = Record(23, "BeginTransactionRecord", "name" / Field(String, nullable=0, default=None, tag=0))
"""A transaction begins: the records after it count only if the transaction ends (KIP-868)."""

EndTransactionRecord = Record(24, "EndTransactionRecord")
"""The records since the Begin count from here on (KIP-868)."""

AbortTransactionRecord = Record(25, "AbortTransactionRecord", "reason" / Field(String, nullable=0, default=None, tag=0))
"""The records since the Begin never count (KIP-868)."""

RegisterControllerRecord = Record(
    27,
    "RegisterControllerRecord",
    "controller_id" / Int32,
    "incarnation_id" / Uuid,
    "zk_migration_ready" / Field(Bool),
    "end_points" / Field(Array(BrokerEndpoint.wire)),
    "features" / Field(Array(BrokerFeature.wire)),
)
"""A controller registered."""

ClearElrRecord = Record(28, "ClearElrRecord", "topic_name" / String)
"""The eligible leader replicas of a topic were cleared (KIP-966); an empty name means all topics."""

MetadataRecord = reduce(or_, FORM_OF)
"""Any metadata record."""
