"""Kafka's APIs: their numbers, names and versions. No other module declares these."""

from dataclasses import dataclass
from enum import IntEnum


class ApiKey(IntEnum):
    """Every API whose messages are declared; the names are Kafka's."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    TXN_SHARE_ACKNOWLEDGE = 1093
    """Of no Kafka: its draft KIP-1289 had 93 for it, then 95."""

    @property
    def api_name(self) -> str:
        """Kafka's name of the API: `LIST_OFFSETS` is `ListOffsets`."""
        return "".join(part.capitalize() for part in self.name.split("_"))


@dataclass(frozen=True)
class Versions:
    """The known versions of one API; each range includes both ends."""

    served: tuple[int, int]
    """The versions that can be decoded and answered; the second number is below the first if all are unstable."""
    flexible_since: int | None
    """The first version with compact lengths and tagged fields (KIP-482); None if there is none."""
    advertised: tuple[int, int] | None = None
    """The range in ApiVersions; None if it is `served`."""
    unstable: int | None = None
    """A version above `served` that Kafka may still change (its latestVersionUnstable)."""

    @property
    def declared(self) -> tuple[int, int]:
        """The versions in which the API's messages can be encoded and decoded."""
        return self.served[0], self.served[1] if self.unstable is None else self.unstable


SERVED: dict[ApiKey, Versions] = {
    ApiKey.PRODUCE: Versions((3, 13), 9, advertised=(0, 13)),
    ApiKey.FETCH: Versions((4, 18), 12),
    ApiKey.LIST_OFFSETS: Versions((0, 11), 6, advertised=(1, 11)),
    ApiKey.METADATA: Versions((0, 13), 9),
    ApiKey.OFFSET_COMMIT: Versions((0, 10), 8, advertised=(2, 10)),
    ApiKey.OFFSET_FETCH: Versions((1, 10), 6),
    ApiKey.FIND_COORDINATOR: Versions((0, 6), 3),
    ApiKey.JOIN_GROUP: Versions((0, 9), 6),
    ApiKey.HEARTBEAT: Versions((0, 4), 4),
    ApiKey.LEAVE_GROUP: Versions((0, 5), 4),
    ApiKey.SYNC_GROUP: Versions((0, 5), 4),
    ApiKey.DESCRIBE_GROUPS: Versions((0, 6), 5),
    ApiKey.LIST_GROUPS: Versions((0, 5), 3),
    ApiKey.SASL_HANDSHAKE: Versions((0, 1), None),
    ApiKey.API_VERSIONS: Versions((0, 4), 3),
    ApiKey.CREATE_TOPICS: Versions((0, 7), 5, advertised=(2, 7)),
    ApiKey.DELETE_TOPICS: Versions((0, 6), 4, advertised=(1, 6)),
    ApiKey.DELETE_RECORDS: Versions((0, 2), 2),
    ApiKey.INIT_PRODUCER_ID: Versions((0, 5), 2, unstable=6),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions((0, 4), 4, advertised=(2, 4)),
    ApiKey.ADD_PARTITIONS_TO_TXN: Versions((0, 5), 3),
    ApiKey.ADD_OFFSETS_TO_TXN: Versions((0, 4), 3),
    ApiKey.END_TXN: Versions((0, 5), 3),
    ApiKey.WRITE_TXN_MARKERS: Versions((0, 2), 1, advertised=(1, 2)),
    ApiKey.TXN_OFFSET_COMMIT: Versions((0, 6), 3, advertised=(0, 5)),  # 4.3 does not know 6, which comes with Kafka 4.4
    ApiKey.DESCRIBE_ACLS: Versions((1, 3), 2),
    ApiKey.CREATE_ACLS: Versions((1, 3), 2),
    ApiKey.DELETE_ACLS: Versions((1, 3), 2),
    ApiKey.DESCRIBE_CONFIGS: Versions((0, 4), 4, advertised=(1, 4)),
    ApiKey.ALTER_CONFIGS: Versions((0, 2), 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Versions((1, 2), 2),
    ApiKey.DESCRIBE_LOG_DIRS: Versions((1, 5), 2),
    ApiKey.SASL_AUTHENTICATE: Versions((0, 2), 2),
    ApiKey.CREATE_PARTITIONS: Versions((0, 3), 2),
    ApiKey.DELETE_GROUPS: Versions((0, 2), 2),
    ApiKey.ELECT_LEADERS: Versions((0, 2), 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Versions((0, 1), 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Versions((0, 1), 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Versions((0, 0), 0),
    ApiKey.OFFSET_DELETE: Versions((0, 0), None),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Versions((0, 1), 1),
    ApiKey.ALTER_CLIENT_QUOTAS: Versions((0, 1), 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Versions((0, 0), 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Versions((0, 0), 0),
    ApiKey.DESCRIBE_QUORUM: Versions((0, 2), 0),
    ApiKey.UPDATE_FEATURES: Versions((0, 2), 0),
    ApiKey.ENVELOPE: Versions((0, 0), 0),
    ApiKey.DESCRIBE_CLUSTER: Versions((0, 2), 0),
    ApiKey.DESCRIBE_PRODUCERS: Versions((0, 0), 0),
    ApiKey.UNREGISTER_BROKER: Versions((0, 0), 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Versions((0, 0), 0),
    ApiKey.LIST_TRANSACTIONS: Versions((0, 2), 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Versions((0, 1), 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Versions((0, 1), 0),
    ApiKey.LIST_CONFIG_RESOURCES: Versions((0, 1), 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Versions((0, 0), 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: Versions((1, 1), 0),
    ApiKey.SHARE_GROUP_DESCRIBE: Versions((1, 1), 0),
    ApiKey.SHARE_FETCH: Versions((1, 2), 0),
    ApiKey.SHARE_ACKNOWLEDGE: Versions((1, 2), 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Versions((0, 0), 0),
    ApiKey.READ_SHARE_GROUP_STATE: Versions((0, 0), 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: Versions((0, 1), 0),
    ApiKey.DELETE_SHARE_GROUP_STATE: Versions((0, 0), 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Versions((0, 1), 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Versions((0, 1), 0),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Versions((0, 0), 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Versions((0, 0), 0),
    ApiKey.TXN_SHARE_ACKNOWLEDGE: Versions((0, -1), 0, unstable=0),
}
"""The APIs that the broker serves."""
