"""Values of the admin client about the cluster: brokers, features, the quorum, log directories, reassignments."""

from collections.abc import Mapping
from typing import NamedTuple

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class BrokerInfo(NamedTuple):
    """One broker. `fenced` is known only if the request included fenced brokers (Kafka 4.0)."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool = False


class ClusterDescription(NamedTuple):
    """The cluster: its id, the id of its controller (-1 if there is none now) and its brokers by rising id."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerInfo, ...]


class FeatureLevels(NamedTuple):
    """The cluster's finalized features, the features that one broker supports, and the epoch (KIP-584).

    `epoch` grows with each change of the finalized features; it is None if the broker does not know features.
    """

    finalized: Mapping[str, int]
    supported: Mapping[str, tuple[int, int]]
    epoch: int | None


class QuorumReplica(NamedTuple):
    """A voter or observer of the metadata log; times are ms since 1970, None if unknown."""

    replica_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


class QuorumDescription(NamedTuple):
    """The quorum that keeps the metadata log (KRaft); offsets are those of the metadata log."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


class ReplicaSize(NamedTuple):
    """A replica in a log directory: its bytes, its lag in offsets, and whether it is still moving there."""

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A log directory of a broker. `error` is why it is unavailable (KAFKA_STORAGE_ERROR), None if it is available.

    `total_bytes` and `usable_bytes` are those of the volume, -1 if the broker is too old to report them (Kafka 3.3).
    """

    path: str
    error: ErrorCode | None
    replicas: Mapping[TopicPartition, ReplicaSize]
    total_bytes: int
    usable_bytes: int


class Reassignment(NamedTuple):
    """An ongoing reassignment: all replicas now, those being added and those being removed, as broker ids."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
