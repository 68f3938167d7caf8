"""What the admin client tells: topics, configurations, groups, transactions and producers as plain values."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from fencepost.client.core.partitions import PartitionInfo
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class TopicDescription(NamedTuple):
    """One topic; `partitions` by number, each with leader, leader epoch, replicas and in-sync replicas."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    internal: bool


class NewTopic(NamedTuple):
    """A topic to create; -1 takes the broker's default (Kafka 2.4). Units of `configs` are Kafka's.

    `assignments` are the brokers of each partition's replicas, the preferred leader first, instead of both numbers.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = MappingProxyType({})
    assignments: Mapping[int, Sequence[int]] | None = None


class CreatedTopic(NamedTuple):
    """What became of a new topic; numbers are -1 and the id is zero where the broker is too old to tell them."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


class ConfigResource(NamedTuple):
    """A thing that has settings; `kind` is "topic", "broker", "broker_logger", "client_metrics" or "group".

    The broker with the name "" stands for the settings that all brokers share.
    """

    kind: str
    name: str


class ConfigSynonym(NamedTuple):
    """Another place from which a setting would be taken if the one before it were not set."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One setting. `source` is Kafka's number (see ConfigSource); secrets have value None.

    `synonyms` are where it comes from and would come from, first that which counts. `documentation` is there only if it
    was asked for (Kafka 2.6).
    """

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


HIDDEN: Final = "(secret)"
"""What stands where a secret's value would."""
_SECRET_ENDS: Final = (
    "password", "passphrase", "secret", "secret.key", "master.key", "keystore.key", "keystore.certificate.chain",
    "truststore.certificates", "jaas.config",
)  # fmt: skip
"""How the names of Kafka's settings of type PASSWORD end, with a listener's prefix or without."""


def is_secret(name: str, entry: ConfigEntry | None) -> bool:
    """Whether a setting's value is to be shown to nobody. Brokers say so only of what they know or what is set."""
    return (entry is not None and entry.sensitive) or name.endswith(_SECRET_ENDS)


class GroupListing(NamedTuple):
    """One group in a list; `state` and `type` are empty if the broker is too old to report them."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupMember(NamedTuple):
    """One member of a group and the partitions it reads.

    Only groups of the consumer protocol tell `target` (the partitions it is to have), `epoch` and `subscribed`.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] = ()
    epoch: int = -1
    subscribed: tuple[str, ...] = ()


class GroupDescription(NamedTuple):
    """One group with its members. `type` is "classic" or "consumer"; classic groups have no epochs (-1)."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    type: str = "classic"
    group_epoch: int = -1
    assignment_epoch: int = -1


def consumer_group_description(group: Any) -> GroupDescription:
    """A group of the consumer protocol out of ConsumerGroupDescribe; its protocol is the broker's assignor."""
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _partitions_of(member.assignment),
            _partitions_of(member.target_assignment),
            member.member_epoch,
            tuple(member.subscribed_topic_names),
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id,
        group.group_state,
        "consumer",
        group.assignor_name,
        members,
        "consumer",
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions_of(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


class ProducerIdentity(NamedTuple):
    """The producer id and the epoch of a producer."""

    producer_id: int
    producer_epoch: int


class TransactionListing(NamedTuple):
    """One transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str


class HistoryEvent(NamedTuple):
    """Something that happened to a transactional id: a change of its identity, or a request that was refused.

    `code` is what the refused client heard, None for a change; `reason` is one word, `text` one sentence. The same
    refusal again is counted in `times`, up to `last_ms`.
    """

    time_ms: int
    last_ms: int
    times: int
    reason: str
    code: ErrorCode | None
    client_id: str
    client_host: str
    text: str


class TransactionHistory(NamedTuple):
    """What only fencepost tells, as far as its process remembers: whose id it is, and what shut whom out.

    The owner made the newest identity (InitProducerId); the writer began or ended the last transaction. Both are empty
    after a restart of the broker, until they come again.
    """

    owner_client_id: str
    owner_host: str
    writer_client_id: str
    writer_host: str
    lines: tuple[HistoryEvent, ...]


class TransactionDescription(NamedTuple):
    """One transactional id as its coordinator sees it.

    `started` is None and `partitions` empty while nothing is open. `blocks` are the partitions whose last stable offset
    this transaction holds: read_committed readers wait there for it. `history` is None if the broker is not fencepost.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started: datetime | None
    partitions: tuple[TopicPartition, ...]
    blocks: tuple[TopicPartition, ...] = ()
    history: TransactionHistory | None = None


class ProducerState(NamedTuple):
    """What a partition remembers of one producer; `transaction_start_offset` is None while it has none open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class Verdict(Enum):
    """What will become of an open transaction."""

    OPEN = "open"
    """Its coordinator knows it: its client, its timeout or a newcomer ends it."""
    PREPARED = "prepared"
    """It is part of a two-phase commit and has no timeout: an outside coordinator decides (KIP-939)."""
    COMPLETING = "completing"
    """It is decided, and its marker is still owed to the partition."""
    UNOWNED = "unowned"
    """Its coordinator does not know it, but it is young: it may be ending at this moment."""
    HANGING = "hanging"
    """Its coordinator does not know it, and it is older than any may get: nobody will end it (row T20)."""


class Holder(NamedTuple):
    """A transaction that is open on a partition."""

    producer: ProducerState
    first_offset: int
    verdict: Verdict
    transaction: TransactionDescription | None
    """The coordinator's view; None where it has no transactional id with this producer id."""


class WaitingGroup(NamedTuple):
    """A group whose read_committed readers cannot get beyond the last stable offset."""

    group_id: str
    state: str
    committed: int
    own_lag: int
    """Offsets between its position and the last stable one: those it could read."""
    held_back: int
    """Offsets between the last stable one and the high watermark: those it cannot."""


class LastStableOffsetInfo(NamedTuple):
    """Why a partition's last stable offset stands where it stands; `holders` by rising first offset."""

    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    holders: tuple[Holder, ...]
    groups: tuple[WaitingGroup, ...]


class HangingTransaction(NamedTuple):
    """An open transaction that nobody will end, with what a marker that ends it must carry."""

    partition: TopicPartition
    producer: ProducerState
    first_offset: int
    transactional_id: str | None
    why: str


class OffsetInfo(NamedTuple):
    """An offset, the timestamp (ms) of its record and its leader epoch; -1 where the broker does not tell it.

    Offset -1: no record is that late.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1
