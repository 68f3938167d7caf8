"""The values that the admin client takes and returns: topics, settings, groups, transactions and producers."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from fencepost.client.core.partitions import PartitionInfo
from fencepost.protocol.admin_enums import ConfigSource
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
    """A new topic; the numbers are -1 and the id is zero if the broker is too old to report them."""

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
    """A place that would give a setting its value if all places before it had none."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting. Secrets have value None.

    `synonyms` are the places that may give it a value; the first one counts. `documentation` is None unless the request
    wanted it (Kafka 2.6).
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


HIDDEN: Final = "(secret)"
"""The text that is shown in place of a secret value."""
_SECRET_ENDS: Final = (
    "password", "passphrase", "secret", "secret.key", "master.key", "keystore.key", "keystore.certificate.chain",
    "truststore.certificates", "jaas.config",
)  # fmt: skip
"""How the names of Kafka's settings of type PASSWORD end, with a listener's prefix or without."""


def is_secret(name: str, entry: ConfigEntry | None) -> bool:
    """Whether a setting's value is secret. Brokers mark only settings that they know or that are set."""
    return (entry is not None and entry.sensitive) or name.endswith(_SECRET_ENDS)


class GroupListing(NamedTuple):
    """One group in a list; `state` and `type` are empty if the broker is too old to report them."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupMember(NamedTuple):
    """One member of a group and the partitions it reads.

    Only groups of the consumer protocol have `target` (the partitions that the member will get). They and share groups
    have `epoch` and `subscribed`.
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
    """One group with its members. `type` is "classic", "consumer" or "share"; classic groups have no epochs (-1)."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    type: str = "classic"
    group_epoch: int = -1
    assignment_epoch: int = -1


def consumer_group_description(group: Any) -> GroupDescription:
    """A group of the consumer protocol, from ConsumerGroupDescribe; its protocol is the broker's assignor."""
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


def share_group_description(group: Any) -> GroupDescription:
    """A share group, from ShareGroupDescribe; its members have no instance ids."""
    members = tuple(
        GroupMember(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            _partitions_of(member.assignment),
            epoch=member.member_epoch,
            subscribed=tuple(member.subscribed_topic_names),
        )
        for member in group.members
    )
    epochs = group.group_epoch, group.assignment_epoch
    return GroupDescription(group.group_id, group.group_state, "share", group.assignor_name, members, "share", *epochs)


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
    """An event of a transactional id: a change of its identity, or a rejected request.

    `code` is the error that the rejected client got, None for a change; `reason` is one word, `text` one sentence.
    `times` counts equal rejections, `last_ms` is the time of the last one.
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
    """The clients of a transactional id and its last events, as a fencepost broker keeps them in memory.

    The owner created the newest identity (InitProducerId); the writer began or ended the last transaction. Both are
    empty after a restart of the broker, until their next request.
    """

    owner_client_id: str
    owner_host: str
    writer_client_id: str
    writer_host: str
    lines: tuple[HistoryEvent, ...]


class TransactionDescription(NamedTuple):
    """One transactional id, as its coordinator describes it.

    `started` is None and `partitions` is empty while no transaction is open. `blocks` are the partitions whose last
    stable offset this transaction holds: read_committed consumers wait there. `history` is None for other brokers than
    fencepost.
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
    """A partition's state of one producer; `transaction_start_offset` is None while no transaction is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class Verdict(Enum):
    """What will happen to an open transaction."""

    OPEN = "open"
    """Its coordinator knows it: its client, its timeout or a newer producer ends it."""
    PREPARED = "prepared"
    """It is part of a two-phase commit without a timeout: an outside coordinator decides (KIP-939)."""
    COMPLETING = "completing"
    """Its outcome is decided; the partition does not have its marker yet."""
    UNOWNED = "unowned"
    """Its coordinator does not know it, but it is recent: it may be ending at this moment."""
    HIDDEN = "hidden"
    """No transactional id that the user may see has its producer id, and there may be others: ListTransactions leaves
    them out without an error. So this user cannot know whether it hangs."""
    HANGING = "hanging"
    """Its coordinator does not know it, and it is older than the longest timeout: it will never end (row T20)."""


class Holder(NamedTuple):
    """A transaction that is open on a partition."""

    producer: ProducerState
    first_offset: int
    verdict: Verdict
    transaction: TransactionDescription | None
    """The coordinator's description; None if no transactional id has this producer id."""


class WaitingGroup(NamedTuple):
    """A group whose read_committed consumers cannot read past the last stable offset."""

    group_id: str
    state: str
    committed: int
    own_lag: int
    """Offsets between its position and the last stable offset: it can read these."""
    held_back: int
    """Offsets between the last stable offset and the high watermark: it cannot read these."""


class LastStableOffsetInfo(NamedTuple):
    """A partition's last stable offset, the transactions that hold it, and the groups that wait.

    `holders` are sorted by first offset: the first one holds the offset.
    """

    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    holders: tuple[Holder, ...]
    groups: tuple[WaitingGroup, ...]


class HangingTransaction(NamedTuple):
    """An open transaction that no coordinator will end, with the producer state that its ABORT marker needs."""

    partition: TopicPartition
    producer: ProducerState
    first_offset: int
    transactional_id: str | None
    why: str


class OffsetInfo(NamedTuple):
    """An offset, the timestamp (ms) of its record and its leader epoch; -1 if the broker does not report it.

    Offset -1: no record has that timestamp or a later one.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1
