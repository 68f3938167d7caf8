"""API key -> name, message file and versions: what the broker serves and says of it, and what only our client asks."""

from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from types import ModuleType

from fencepost.protocol.schema import NO_VERSION, Message


@dataclass(frozen=True)
class Api:
    """One API. `served` is what we understand, `advertised` what ApiVersions tells (a part of it, or for Produce more).

    A few versions below Kafka 4's floor are served, and told only to clients that are too old to do without
    (`told_to_old_clients`); Produce is told from 0 on to everybody, because librdkafka up to 2.11 takes a higher floor
    for a broker without compression (KAFKA-18659).
    """

    key: int
    name: str
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


API_VERSIONS = 18

_ROWS: tuple[tuple[int, str, tuple[int, int], tuple[int, int] | None, int | None], ...] = (
    # key, name, served, advertised where that differs, first flexible version
    (0, "Produce", (3, 13), (0, 13), 9),
    (1, "Fetch", (4, 18), None, 12),
    (2, "ListOffsets", (0, 11), (1, 11), 6),
    (3, "Metadata", (0, 13), None, 9),
    (8, "OffsetCommit", (0, 10), (2, 10), 8),
    (9, "OffsetFetch", (1, 10), None, 6),
    (10, "FindCoordinator", (0, 6), None, 3),
    (11, "JoinGroup", (0, 9), None, 6),
    (12, "Heartbeat", (0, 4), None, 4),
    (13, "LeaveGroup", (0, 5), None, 4),
    (14, "SyncGroup", (0, 5), None, 4),
    (15, "DescribeGroups", (0, 6), None, 5),
    (16, "ListGroups", (0, 5), None, 3),
    (17, "SaslHandshake", (0, 1), None, None),
    (18, "ApiVersions", (0, 4), None, 3),
    (19, "CreateTopics", (0, 7), (2, 7), 5),
    (20, "DeleteTopics", (0, 6), (1, 6), 4),
    (21, "DeleteRecords", (0, 2), None, 2),
    (22, "InitProducerId", (0, 5), None, 2),
    (23, "OffsetForLeaderEpoch", (0, 4), (2, 4), 4),
    (24, "AddPartitionsToTxn", (0, 5), None, 3),
    (25, "AddOffsetsToTxn", (0, 4), None, 3),
    (26, "EndTxn", (0, 5), None, 3),
    (27, "WriteTxnMarkers", (0, 2), (1, 2), 1),
    (28, "TxnOffsetCommit", (0, 6), (0, 5), 3),  # 6 is Kafka 4.4's; what 4.3 does not know, nobody is told of
    (32, "DescribeConfigs", (0, 4), (1, 4), 4),
    (33, "AlterConfigs", (0, 2), None, 2),
    (34, "AlterReplicaLogDirs", (1, 2), None, 2),
    (35, "DescribeLogDirs", (1, 5), None, 2),
    (36, "SaslAuthenticate", (0, 2), None, 2),
    (37, "CreatePartitions", (0, 3), None, 2),
    (42, "DeleteGroups", (0, 2), None, 2),
    (43, "ElectLeaders", (0, 2), None, 2),
    (44, "IncrementalAlterConfigs", (0, 1), None, 1),
    (45, "AlterPartitionReassignments", (0, 1), None, 0),
    (46, "ListPartitionReassignments", (0, 0), None, 0),
    (47, "OffsetDelete", (0, 0), None, None),
    (55, "DescribeQuorum", (0, 2), None, 0),
    (57, "UpdateFeatures", (0, 2), None, 0),
    (60, "DescribeCluster", (0, 2), None, 0),
    (61, "DescribeProducers", (0, 0), None, 0),
    (64, "UnregisterBroker", (0, 0), None, 0),
    (65, "DescribeTransactions", (0, 0), None, 0),
    (66, "ListTransactions", (0, 2), None, 0),
    (68, "ConsumerGroupHeartbeat", (0, 1), None, 0),
    (69, "ConsumerGroupDescribe", (0, 1), None, 0),
    (74, "ListConfigResources", (0, 1), None, 0),
    (75, "DescribeTopicPartitions", (0, 0), None, 0),
)

_UNSTABLE = {22: 6}

API_BY_KEY: dict[int, Api] = {
    key: Api(key, name, served, advertised or served, NO_VERSION if flexible is None else flexible, _UNSTABLE.get(key))
    for key, name, served, advertised, flexible in _ROWS
}
_ASKED_ROWS: tuple[tuple[int, str, tuple[int, int], int | None], ...] = (
    # key, name, versions our client speaks, first flexible version
    (29, "DescribeAcls", (1, 3), 2),
    (30, "CreateAcls", (1, 3), 2),
    (31, "DeleteAcls", (1, 3), 2),
    (48, "DescribeClientQuotas", (0, 1), 1),
    (49, "AlterClientQuotas", (0, 1), 1),
    (50, "DescribeUserScramCredentials", (0, 0), 0),
    (51, "AlterUserScramCredentials", (0, 0), 0),
)

ASKED_BY_KEY: dict[int, Api] = {
    key: Api(key, name, versions, versions, NO_VERSION if flexible is None else flexible)
    for key, name, versions, flexible in _ASKED_ROWS
}
"""What our client asks other brokers and our own broker does not serve (docs/decisions/0023-asked-but-not-served.md).

A broker that gains one of these moves its row above and brings a handler."""

KNOWN_BY_KEY: dict[int, Api] = API_BY_KEY | ASKED_BY_KEY
"""Every API whose messages are declared."""

API_BY_NAME: dict[str, Api] = {api.name: api for api in API_BY_KEY.values()}
