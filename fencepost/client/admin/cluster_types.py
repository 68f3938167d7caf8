"""What the admin client tells of the cluster: brokers, features, the quorum, directories, replicas that move."""

from collections.abc import Mapping
from typing import NamedTuple

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class BrokerInfo(NamedTuple):
    """One broker. `fenced` is told only where fenced ones were asked for (Kafka 4.0)."""

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
    """What is finalized for the cluster, what the asked broker could do, and the epoch of the former (KIP-584).

    `epoch` grows with each change; it is None where the broker knows no features.
    """

    finalized: Mapping[str, int]
    supported: Mapping[str, tuple[int, int]]
    epoch: int | None


class QuorumReplica(NamedTuple):
    """A voter or observer of the metadata log; times are ms since 1970, None where they are not known."""

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
    """A replica in a directory: bytes on disk, how many offsets it lags, whether it is still being moved there."""

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A directory of a broker. `error` is why it is not available (KAFKA_STORAGE_ERROR), None for a good one.

    `total_bytes` and `usable_bytes` are of the volume, -1 where the broker is too old to tell them (Kafka 3.3).
    """

    path: str
    error: ErrorCode | None
    replicas: Mapping[TopicPartition, ReplicaSize]
    total_bytes: int
    usable_bytes: int


class Reassignment(NamedTuple):
    """A partition whose replicas move: all of them now, those that come, those that go, as broker ids."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
