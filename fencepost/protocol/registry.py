"""API key -> name, message file and versions: what the broker serves and says of it, and what only our client asks."""

from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from types import ModuleType

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import NO_VERSION, Message


@dataclass(frozen=True)
class Api:
    """One API. `served` is what we understand, `advertised` what ApiVersions tells (a part of it, or for Produce more).

    A few versions below Kafka 4's floor are served, and told only to clients that are too old to do without
    (`told_to_old_clients`); Produce is told from 0 on to everybody, because librdkafka up to 2.11 takes a higher floor
    for a broker without compression (KAFKA-18659).
    """

    key: ApiKey
    served: tuple[int, int]
    advertised: tuple[int, int]
    flexible_since: int
    unstable: int | None = None
    """A version above `served` that Kafka may still change (its latestVersionUnstable): offered only where the broker
    is told to by `unstable.api.versions.enable`, and asked for only by who needs it."""

    def with_unstable(self) -> "Api":
        """This API as a broker serves it that offers unstable versions, too."""
        if self.unstable is None:
            return self
        return replace(
            self, served=(self.served[0], self.unstable), advertised=(self.advertised[0], self.unstable), unstable=None
        )

    @cached_property
    def name(self) -> str:
        """Kafka's name of the API."""
        return self.key.api_name

    @property
    def told_to_old_clients(self) -> tuple[int, int]:
        """The range for clients that look for versions which Kafka 4 dropped, and will not work without."""
        return min(self.served[0], self.advertised[0]), self.advertised[1]

    @property
    def module_name(self) -> str:
        """The last part of the module that declares this API's messages (and of its handler)."""
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in self.name).lstrip("_")
        return f"api{self.key:02d}_{snake}"

    @cached_property
    def module(self) -> ModuleType:
        """The declarations, imported on first use."""
        return import_module(f"fencepost.protocol.messages.{self.module_name}")

    @cached_property
    def request(self) -> Message:
        """The request's declaration."""
        message: Message = getattr(self.module, f"{self.name}Request")
        return message

    @cached_property
    def response(self) -> Message:
        """The response's declaration."""
        message: Message = getattr(self.module, f"{self.name}Response")
        return message

    def serves(self, version: int) -> bool:
        """Whether a request of `version` can be decoded and answered."""
        return self.served[0] <= version <= self.served[1]

    def reads(self, version: int) -> bool:
        """Whether a request of `version` can be decoded, be it one that is only served where unstable ones are."""
        return self.served[0] <= version <= (self.served[1] if self.unstable is None else self.unstable)

    def request_header_version(self, version: int) -> int:
        """1, or 2 (with tagged fields) for flexible requests (KIP-482)."""
        return 2 if version >= self.flexible_since else 1

    def response_header_version(self, version: int) -> int:
        """0, or 1 for flexible requests; always 0 for ApiVersions, whose reader does not know our versions yet."""
        return 1 if version >= self.flexible_since and self.key != API_VERSIONS else 0


API_VERSIONS = ApiKey.API_VERSIONS

_ROWS: tuple[tuple[ApiKey, tuple[int, int], tuple[int, int] | None, int | None], ...] = (
    # key, served, advertised where that differs, first flexible version
    (ApiKey.PRODUCE, (3, 13), (0, 13), 9),
    (ApiKey.FETCH, (4, 18), None, 12),
    (ApiKey.LIST_OFFSETS, (0, 11), (1, 11), 6),
    (ApiKey.METADATA, (0, 13), None, 9),
    (ApiKey.OFFSET_COMMIT, (0, 10), (2, 10), 8),
    (ApiKey.OFFSET_FETCH, (1, 10), None, 6),
    (ApiKey.FIND_COORDINATOR, (0, 6), None, 3),
    (ApiKey.JOIN_GROUP, (0, 9), None, 6),
    (ApiKey.HEARTBEAT, (0, 4), None, 4),
    (ApiKey.LEAVE_GROUP, (0, 5), None, 4),
    (ApiKey.SYNC_GROUP, (0, 5), None, 4),
    (ApiKey.DESCRIBE_GROUPS, (0, 6), None, 5),
    (ApiKey.LIST_GROUPS, (0, 5), None, 3),
    (ApiKey.SASL_HANDSHAKE, (0, 1), None, None),
    (ApiKey.API_VERSIONS, (0, 4), None, 3),
    (ApiKey.CREATE_TOPICS, (0, 7), (2, 7), 5),
    (ApiKey.DELETE_TOPICS, (0, 6), (1, 6), 4),
    (ApiKey.DELETE_RECORDS, (0, 2), None, 2),
    (ApiKey.INIT_PRODUCER_ID, (0, 5), None, 2),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, (0, 4), (2, 4), 4),
    (ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), None, 3),
    (ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), None, 3),
    (ApiKey.END_TXN, (0, 5), None, 3),
    (ApiKey.WRITE_TXN_MARKERS, (0, 2), (1, 2), 1),
    (ApiKey.TXN_OFFSET_COMMIT, (0, 6), (0, 5), 3),  # 6 is Kafka 4.4's; what 4.3 does not know, nobody is told of
    (ApiKey.DESCRIBE_CONFIGS, (0, 4), (1, 4), 4),
    (ApiKey.ALTER_CONFIGS, (0, 2), None, 2),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), None, 2),
    (ApiKey.DESCRIBE_LOG_DIRS, (1, 5), None, 2),
    (ApiKey.SASL_AUTHENTICATE, (0, 2), None, 2),
    (ApiKey.CREATE_PARTITIONS, (0, 3), None, 2),
    (ApiKey.DELETE_GROUPS, (0, 2), None, 2),
    (ApiKey.ELECT_LEADERS, (0, 2), None, 2),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), None, 1),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), None, 0),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), None, 0),
    (ApiKey.OFFSET_DELETE, (0, 0), None, None),
    (ApiKey.DESCRIBE_QUORUM, (0, 2), None, 0),
    (ApiKey.UPDATE_FEATURES, (0, 2), None, 0),
    (ApiKey.DESCRIBE_CLUSTER, (0, 2), None, 0),
    (ApiKey.DESCRIBE_PRODUCERS, (0, 0), None, 0),
    (ApiKey.UNREGISTER_BROKER, (0, 0), None, 0),
    (ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), None, 0),
    (ApiKey.LIST_TRANSACTIONS, (0, 2), None, 0),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), None, 0),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), None, 0),
    (ApiKey.LIST_CONFIG_RESOURCES, (0, 1), None, 0),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), None, 0),
)

_UNSTABLE = {ApiKey.INIT_PRODUCER_ID: 6}

API_BY_KEY: dict[int, Api] = {
    key: Api(key, served, advertised or served, NO_VERSION if flexible is None else flexible, _UNSTABLE.get(key))
    for key, served, advertised, flexible in _ROWS
}
_ASKED_ROWS: tuple[tuple[ApiKey, tuple[int, int], int | None], ...] = (
    # key, versions our client speaks, first flexible version
    (ApiKey.DESCRIBE_ACLS, (1, 3), 2),
    (ApiKey.CREATE_ACLS, (1, 3), 2),
    (ApiKey.DELETE_ACLS, (1, 3), 2),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), 1),
    (ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), 1),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), 0),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), 0),
)

ASKED_BY_KEY: dict[int, Api] = {
    key: Api(key, versions, versions, NO_VERSION if flexible is None else flexible)
    for key, versions, flexible in _ASKED_ROWS
}
"""What our client asks other brokers and our own broker does not serve (docs/decisions/0023-asked-but-not-served.md).

A broker that gains one of these moves its row above and brings a handler."""

KNOWN_BY_KEY: dict[int, Api] = API_BY_KEY | ASKED_BY_KEY
"""Every API whose messages are declared."""

API_BY_NAME: dict[str, Api] = {api.name: api for api in API_BY_KEY.values()}
