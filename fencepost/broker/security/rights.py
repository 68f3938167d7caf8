"""Which rights each API needs: the one table, from which requests are checked and docs/reference/rights.md is made.

Every row is Apache Kafka 4.3's: `KafkaApis`, `ControllerApis`, `AclApis`, `ConfigHelper`, `AuthHelper` and
`DescribeTopicPartitionsRequestHandler`. Without an authorizer no request needs a right, except those in `BROKERS_ONLY`.
"""

from enum import Enum
from typing import NamedTuple

from fencepost.protocol.admin_enums import AclOperation as Op
from fencepost.protocol.admin_enums import AclResourceType as Kind
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode

VERSION_MAX = 2**15 - 1
ANY_NAME = "any"
"""A resource of any name will do, even one that does not exist."""


class Effect(Enum):
    """What happens where the right is missing."""

    REQUEST = "the request is refused"
    """Before its handler runs, by `gate.refusal`."""
    ENTRY = "the entry is refused"
    """The handler answers the error for each refused entry, and serves the others."""
    HIDDEN = "the entry is left out"
    FIELD = "the field is 0"
    OTHER = "the next row counts"
    """The right is an alternative to that of the next row."""


class Right(NamedTuple):
    """One right that an API needs. `of` is what names the resource in the request; "" for the cluster."""

    operation: Op
    kind: Kind
    of: str
    effect: Effect
    error: ErrorCode = ErrorCode.NONE
    since: int = 0
    until: int = VERSION_MAX
    if_set: str = ""
    """The right is needed only if this field of the request is neither null nor false."""
    if_null: str = ""
    """The right is needed only if this field of the request is null."""
    note: str = ""


ERROR_OF = {
    Kind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Kind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Kind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Kind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error for a missing right on a resource of this type."""


def _cluster(operation: Op, effect: Effect = Effect.REQUEST, **more: int | str) -> Right:
    return _right(operation, Kind.CLUSTER, "", effect, **more)


def _right(operation: Op, kind: Kind, of: str, effect: Effect, **more: int | str) -> Right:
    refuses = effect in (Effect.REQUEST, Effect.ENTRY)
    return Right(operation, kind, of, effect, ERROR_OF[kind] if refuses else ErrorCode.NONE, **more)  # type: ignore[arg-type]


_GROUP_READ = _right(Op.READ, Kind.GROUP, "group_id", Effect.REQUEST)
_GROUP_DESCRIBE = _right(Op.DESCRIBE, Kind.GROUP, "groups", Effect.ENTRY)
_ID_WRITE = _right(Op.WRITE, Kind.TRANSACTIONAL_ID, "transactional_id", Effect.REQUEST)
_CONFIGS = "for brokers, loggers and client metrics"

RIGHTS: dict[ApiKey, tuple[Right, ...]] = {
    ApiKey.PRODUCE: (
        _right(
            Op.WRITE,
            Kind.TRANSACTIONAL_ID,
            "transactional_id",
            Effect.ENTRY,
            note="only if a batch is transactional; then every entry is refused",
        ),
        _right(Op.WRITE, Kind.TOPIC, "topic_data", Effect.ENTRY, note="an idempotent batch needs nothing more"),
    ),
    ApiKey.FETCH: (
        _cluster(Op.CLUSTER_ACTION, Effect.OTHER, note="a follower (replica id of 0 or more) needs only this one"),
        _right(Op.READ, Kind.TOPIC, "topics", Effect.ENTRY, note="again when a waiting fetch is answered"),
    ),
    ApiKey.LIST_OFFSETS: (_right(Op.DESCRIBE, Kind.TOPIC, "topics", Effect.ENTRY),),
    ApiKey.METADATA: (
        _right(
            Op.DESCRIBE,
            Kind.TOPIC,
            "topics",
            Effect.ENTRY,
            note="without an id or a name that the client did not send; in a list of all topics it is left out",
        ),
        _cluster(Op.CREATE, Effect.OTHER, note="to create missing topics"),
        _right(Op.CREATE, Kind.TOPIC, "topics", Effect.ENTRY, note="to create missing topics"),
        _cluster(Op.DESCRIBE, Effect.FIELD, since=8, until=10, note="cluster_authorized_operations"),
    ),
    ApiKey.OFFSET_COMMIT: (_GROUP_READ, _right(Op.READ, Kind.TOPIC, "topics", Effect.ENTRY)),
    ApiKey.OFFSET_FETCH: (
        _GROUP_DESCRIBE,
        _right(
            Op.DESCRIBE,
            Kind.TOPIC,
            "topics",
            Effect.ENTRY,
            note="left out if the request names no topics, to get all of them",
        ),
    ),
    ApiKey.FIND_COORDINATOR: (
        _right(Op.DESCRIBE, Kind.GROUP, "coordinator_keys", Effect.ENTRY, note="key type 0"),
        _right(Op.DESCRIBE, Kind.TRANSACTIONAL_ID, "coordinator_keys", Effect.ENTRY, note="key type 1"),
        _cluster(Op.CLUSTER_ACTION, Effect.ENTRY, since=6, note="key type 2"),
    ),
    ApiKey.JOIN_GROUP: (_GROUP_READ,),
    ApiKey.HEARTBEAT: (_GROUP_READ,),
    ApiKey.LEAVE_GROUP: (_GROUP_READ,),
    ApiKey.SYNC_GROUP: (_GROUP_READ,),
    ApiKey.DESCRIBE_GROUPS: (_GROUP_DESCRIBE,),
    ApiKey.LIST_GROUPS: (
        _cluster(Op.DESCRIBE, Effect.OTHER, note="lists every group"),
        _right(Op.DESCRIBE, Kind.GROUP, "every group", Effect.HIDDEN),
    ),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.API_VERSIONS: (),
    ApiKey.CREATE_TOPICS: (
        _cluster(Op.CREATE, Effect.OTHER),
        _right(Op.CREATE, Kind.TOPIC, "topics", Effect.ENTRY),
        _right(
            Op.DESCRIBE_CONFIGS,
            Kind.TOPIC,
            "topics",
            Effect.HIDDEN,
            since=5,
            note="the settings, with topic_config_error_code TOPIC_AUTHORIZATION_FAILED",
        ),
    ),
    ApiKey.DELETE_TOPICS: (
        _cluster(Op.DELETE, Effect.OTHER),
        _right(Op.DESCRIBE, Kind.TOPIC, "topics", Effect.ENTRY, note="by id: answered without the name"),
        _right(Op.DELETE, Kind.TOPIC, "topics", Effect.ENTRY),
    ),
    ApiKey.DELETE_RECORDS: (_right(Op.DELETE, Kind.TOPIC, "topics", Effect.ENTRY),),
    ApiKey.INIT_PRODUCER_ID: (
        _ID_WRITE,
        _right(
            Op.TWO_PHASE_COMMIT, Kind.TRANSACTIONAL_ID, "transactional_id", Effect.REQUEST, since=6, if_set="enable2_pc"
        ),
        _right(Op.WRITE, Kind.TOPIC, ANY_NAME, Effect.OTHER, if_null="transactional_id"),
        _cluster(Op.IDEMPOTENT_WRITE, if_null="transactional_id"),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        _cluster(Op.CLUSTER_ACTION, Effect.OTHER, note="shows every topic"),
        _right(Op.DESCRIBE, Kind.TOPIC, "topics", Effect.ENTRY),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _right(Op.WRITE, Kind.TRANSACTIONAL_ID, "v3_and_below_transactional_id", Effect.REQUEST, until=3),
        _right(
            Op.WRITE,
            Kind.TOPIC,
            "v3_and_below_topics",
            Effect.ENTRY,
            until=3,
            note="the others are then OPERATION_NOT_ATTEMPTED",
        ),
        _cluster(Op.CLUSTER_ACTION, since=4),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (_ID_WRITE, _GROUP_READ),
    ApiKey.END_TXN: (_ID_WRITE,),
    ApiKey.WRITE_TXN_MARKERS: (_cluster(Op.ALTER, Effect.OTHER), _cluster(Op.CLUSTER_ACTION)),
    ApiKey.TXN_OFFSET_COMMIT: (_ID_WRITE, _GROUP_READ, _right(Op.READ, Kind.TOPIC, "topics", Effect.ENTRY)),
    ApiKey.DESCRIBE_ACLS: (_cluster(Op.DESCRIBE),),
    ApiKey.CREATE_ACLS: (_cluster(Op.ALTER),),
    ApiKey.DELETE_ACLS: (_cluster(Op.ALTER),),
    ApiKey.DESCRIBE_CONFIGS: (
        _right(Op.DESCRIBE_CONFIGS, Kind.TOPIC, "resources", Effect.ENTRY, note="for topics"),
        _right(Op.DESCRIBE_CONFIGS, Kind.GROUP, "resources", Effect.ENTRY, note="for groups"),
        _cluster(Op.DESCRIBE_CONFIGS, Effect.ENTRY, note=_CONFIGS),
    ),
    ApiKey.ALTER_CONFIGS: (
        _right(Op.ALTER_CONFIGS, Kind.TOPIC, "resources", Effect.ENTRY, note="for topics"),
        _right(Op.ALTER_CONFIGS, Kind.GROUP, "resources", Effect.ENTRY, note="for groups"),
        _cluster(Op.ALTER_CONFIGS, Effect.ENTRY, note=_CONFIGS),
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (_cluster(Op.ALTER),),
    ApiKey.DESCRIBE_LOG_DIRS: (_cluster(Op.DESCRIBE),),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.CREATE_PARTITIONS: (_right(Op.ALTER, Kind.TOPIC, "topics", Effect.ENTRY),),
    ApiKey.DELETE_GROUPS: (_right(Op.DELETE, Kind.GROUP, "groups_names", Effect.ENTRY),),
    ApiKey.ELECT_LEADERS: (_cluster(Op.ALTER),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        _right(Op.ALTER_CONFIGS, Kind.TOPIC, "resources", Effect.ENTRY, note="for topics"),
        _right(Op.ALTER_CONFIGS, Kind.GROUP, "resources", Effect.ENTRY, note="for groups"),
        _cluster(Op.ALTER_CONFIGS, Effect.ENTRY, note=_CONFIGS),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_cluster(Op.ALTER),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (_cluster(Op.DESCRIBE),),
    ApiKey.OFFSET_DELETE: (
        _right(Op.DELETE, Kind.GROUP, "group_id", Effect.REQUEST),
        _right(Op.READ, Kind.TOPIC, "topics", Effect.ENTRY),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (_cluster(Op.DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_cluster(Op.ALTER_CONFIGS),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (_cluster(Op.DESCRIBE),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (_cluster(Op.ALTER),),
    ApiKey.DESCRIBE_QUORUM: (_cluster(Op.DESCRIBE),),
    ApiKey.UPDATE_FEATURES: (_cluster(Op.ALTER),),
    ApiKey.ENVELOPE: (_cluster(Op.CLUSTER_ACTION, note="and only a broker has it, by its login"),),
    ApiKey.DESCRIBE_CLUSTER: (_cluster(Op.DESCRIBE, Effect.FIELD, note="cluster_authorized_operations"),),
    ApiKey.DESCRIBE_PRODUCERS: (_right(Op.READ, Kind.TOPIC, "topics", Effect.ENTRY),),
    ApiKey.UNREGISTER_BROKER: (_cluster(Op.ALTER),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        _right(Op.DESCRIBE, Kind.TRANSACTIONAL_ID, "transactional_ids", Effect.ENTRY),
        _right(Op.DESCRIBE, Kind.TOPIC, "every topic of the transaction", Effect.HIDDEN),
        _cluster(Op.DESCRIBE, Effect.HIDDEN, note="fencepost's history of the transactional id (tag 1000)"),
    ),
    ApiKey.LIST_TRANSACTIONS: (_right(Op.DESCRIBE, Kind.TRANSACTIONAL_ID, "every transaction", Effect.HIDDEN),),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        _GROUP_READ,
        _right(Op.DESCRIBE, Kind.TOPIC, "subscribed_topic_names", Effect.REQUEST, note="every one of them"),
        _right(Op.DESCRIBE, Kind.TOPIC, "every topic that matches the regex", Effect.HIDDEN, since=1),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        _right(Op.DESCRIBE, Kind.GROUP, "group_ids", Effect.ENTRY),
        _right(
            Op.DESCRIBE, Kind.TOPIC, "every topic assigned in the group", Effect.ENTRY, note="the group is then refused"
        ),
    ),
    ApiKey.LIST_CONFIG_RESOURCES: (_cluster(Op.DESCRIBE_CONFIGS),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        _right(Op.DESCRIBE, Kind.TOPIC, "topics", Effect.ENTRY, note="in a list of all topics it is left out"),
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: (
        _GROUP_READ,
        _right(Op.DESCRIBE, Kind.TOPIC, "subscribed_topic_names", Effect.REQUEST, note="every one of them"),
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: (
        _right(Op.DESCRIBE, Kind.GROUP, "group_ids", Effect.ENTRY),
        _right(
            Op.DESCRIBE, Kind.TOPIC, "every topic assigned in the group", Effect.ENTRY, note="the group is then refused"
        ),
    ),
    ApiKey.SHARE_FETCH: (_GROUP_READ, _right(Op.READ, Kind.TOPIC, "topics", Effect.ENTRY)),
    ApiKey.SHARE_ACKNOWLEDGE: (_GROUP_READ, _right(Op.READ, Kind.TOPIC, "topics", Effect.ENTRY)),
    ApiKey.TXN_SHARE_ACKNOWLEDGE: (_ID_WRITE, _GROUP_READ, _right(Op.READ, Kind.TOPIC, "topics", Effect.ENTRY)),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (_cluster(Op.CLUSTER_ACTION),),
    ApiKey.READ_SHARE_GROUP_STATE: (_cluster(Op.CLUSTER_ACTION),),
    ApiKey.WRITE_SHARE_GROUP_STATE: (_cluster(Op.CLUSTER_ACTION),),
    ApiKey.DELETE_SHARE_GROUP_STATE: (_cluster(Op.CLUSTER_ACTION),),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (_cluster(Op.CLUSTER_ACTION),),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        _GROUP_DESCRIBE,
        _right(
            Op.DESCRIBE,
            Kind.TOPIC,
            "every topic of the group",
            Effect.ENTRY,
            note="left out if the request names no topics, to get all of them",
        ),
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (_GROUP_READ, _right(Op.READ, Kind.TOPIC, "topics", Effect.ENTRY)),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
        _right(Op.DELETE, Kind.GROUP, "group_id", Effect.REQUEST),
        _right(Op.READ, Kind.TOPIC, "topics", Effect.ENTRY),
    ),
}
"""The rights of every served API, in the order in which they are checked."""

BROKERS_ONLY = {
    ApiKey.ADD_PARTITIONS_TO_TXN: 4,
    ApiKey.WRITE_TXN_MARKERS: 0,
    ApiKey.ENVELOPE: 0,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE: 0,
    ApiKey.WRITE_SHARE_GROUP_STATE: 0,
    ApiKey.DELETE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 0,
}
"""Requests of brokers, not of clients: API -> first such version. They can end or change a transaction of another
client, or what a share group has consumed. Without an authorizer only loopback clients may send them, unless
`allow.remote.broker.requests` is set."""
