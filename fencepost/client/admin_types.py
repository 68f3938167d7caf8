"""What the admin client tells: topics, configurations, groups, transactions and producers as plain values."""

from datetime import datetime
from typing import NamedTuple

from fencepost.client.cluster import PartitionInfo
from fencepost.protocol.topics import TopicPartition


class TopicDescription(NamedTuple):
    """One topic; `partitions` by number, each with leader, leader epoch, replicas and in-sync replicas."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    internal: bool


class ConfigEntry(NamedTuple):
    """One setting. `source` is Kafka's number (1 topic, 4 static broker, 5 default, ...); secrets have value None."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool


class GroupListing(NamedTuple):
    """One group in a list; `state` and `kind` are empty on brokers that do not tell them."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


class GroupMember(NamedTuple):
    """One member of a group and the partitions it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """One group with its members."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]


class TransactionListing(NamedTuple):
    """One transactional id as its coordinator sees it.

    `started` is None and `partitions` empty while nothing is open. `blocks` are the partitions whose last stable offset
    this transaction holds: read_committed readers wait there for it.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started: datetime | None
    partitions: tuple[TopicPartition, ...]
    blocks: tuple[TopicPartition, ...] = ()


class ProducerState(NamedTuple):
    """What a partition remembers of one producer; `transaction_start_offset` is None while it has none open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class OffsetInfo(NamedTuple):
    """An offset and the timestamp (ms) of its record, -1 where the broker does not tell it."""

    offset: int
    timestamp_ms: int
