"""Acknowledgements of a request: which are valid, what becomes of the records, and the answer when that is stored."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from fencepost.broker.brokers import Leader, other_leader
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics
from fencepost.broker.share.led import Storing
from fencepost.broker.share.partitions import SharePartitions
from fencepost.broker.share.sessions import MemberKey, TopicIdPartition
from fencepost.broker.share.values import DELAY_MS_MAX, AckBatch, AckType, Refused
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.topics import TopicPartition

RENEW_SINCE = 2
MEMBER_ID_MAX = 36
"""Kafka's KafkaApis.isMemberIdValid: as long as the text of a UUID."""


class Answer(NamedTuple):
    """What became of a partition's acknowledgements."""

    error: ErrorCode = NO_ERROR
    message: str | None = None


def is_member_id(member_id: str | None) -> bool:
    return bool(member_id) and len(member_id or "") <= MEMBER_ID_MAX


def named(
    node: Broker, context: RequestContext, parts: Iterable[TopicIdPartition]
) -> dict[TopicIdPartition, TopicPartition | ErrorCode]:
    """The name of each partition, or why the client may not use it: rights are checked at each request."""
    names = {part: node.metadata.topic_name(part.topic_id) for part in parts}
    refused = denied_topics(node, context, AclOperation.READ, names.values())
    found: dict[TopicIdPartition, TopicPartition | ErrorCode] = {}
    for part, name in names.items():
        if name is None:
            found[part] = ErrorCode.UNKNOWN_TOPIC_ID
        elif name in refused:
            found[part] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else:
            tp = TopicPartition(name, part.partition)
            found[part] = tp if node.metadata.exists(tp) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return found


class Batch(Protocol):
    """An AcknowledgementBatch of either request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class ReleasingBatch(Batch, Protocol):
    """One whose released records may be held back."""

    delay_ms: int


class NamesLeader(Protocol):
    """A partition's part of a response."""

    error_code: int
    current_leader: Any


def name_leaders(
    node: Broker, context: RequestContext, answers: Mapping[TopicIdPartition, NamesLeader]
) -> dict[int, Leader]:
    """Add the leaders of partitions that are led elsewhere (KIP-951); return those brokers by their ids."""
    found: dict[int, Leader] = {}
    for part, answer in answers.items():
        name = node.metadata.topic_name(part.topic_id)
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and name is not None:
            leader = other_leader(node, context, TopicPartition(name, part.partition))
            if leader is not None:
                answer.current_leader.leader_id, answer.current_leader.leader_epoch = leader.node_id, leader.epoch
                found[leader.node_id] = leader
    return found


def problem(batches: Sequence[Batch], may_renew: bool, is_renewal: bool) -> bool:
    """Whether a partition's batches are INVALID_REQUEST (Kafka's `KafkaApis.validateAcknowledgementBatches`)."""
    last = -1
    highest = AckType.RENEW if may_renew else AckType.REJECT
    for batch in batches:
        count, types = batch.last_offset - batch.first_offset + 1, batch.acknowledge_types
        if count < 1 or batch.first_offset < last or len(types) not in (1, count):
            return True
        if min(types) < 0 or max(types) > highest or (AckType.RENEW in types and not is_renewal):
            return True
        last = batch.last_offset
    return False


def wrong_delay(batches: Iterable[ReleasingBatch]) -> bool:
    """Whether a delay is no time, or too long a one (ours)."""
    return not all(0 <= batch.delay_ms <= DELAY_MS_MAX for batch in batches)


def counted_types(batches: Sequence[Batch]) -> Counter[int]:
    """How many records each type is said of (Kafka's `ShareGroupMetrics.recordAcknowledgement`)."""
    found = Counter[int]()
    for batch in batches:
        types, count = batch.acknowledge_types, batch.last_offset - batch.first_offset + 1
        found.update({types[0]: count} if len(types) == 1 else types)
    return found


class Acknowledgements:
    """The acknowledgements of one request. They have taken effect when this exists; `answers` waits for the store."""

    def __init__(
        self,
        shares: SharePartitions,
        member: MemberKey,
        asked: Mapping[TopicIdPartition, Sequence[ReleasingBatch]],
        names: Mapping[TopicIdPartition, TopicPartition | ErrorCode],
        *,
        may_renew: bool,
        is_renewal: bool,
    ) -> None:
        self._answers: dict[TopicIdPartition, Answer] = {}
        self._storing: dict[TopicIdPartition, Storing] = {}
        self._shares, self._group_id = shares, member.group_id
        self._types: dict[TopicIdPartition, Counter[int]] = {}
        self._topics = {part: name.topic for part in asked if isinstance(name := names[part], TopicPartition)}
        for part, batches in asked.items():
            name = names[part]
            if problem(batches, may_renew, is_renewal) or wrong_delay(batches):
                self._answers[part] = Answer(ErrorCode.INVALID_REQUEST)
            elif isinstance(name, ErrorCode):
                self._answers[part] = Answer(name)
            elif not batches:
                self._answers[part] = Answer()
            else:
                self._acknowledge(shares, member, part, batches)

    def _acknowledge(
        self,
        shares: SharePartitions,
        member: MemberKey,
        part: TopicIdPartition,
        batches: Sequence[ReleasingBatch],
    ) -> None:
        led = shares.find(member.group_id, part)
        if led is None or not led.active:
            self._answers[part] = Answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        taken = [
            AckBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types, batch.delay_ms)
            for batch in batches
        ]
        try:
            change = led.core.acknowledge(member.member_id, taken, shares.now_ms)
        except Refused as refused:
            self._answers[part] = Answer(refused.error, str(refused))
        else:
            self._storing[part] = shares.store(led, change)
            self._types[part] = counted_types(batches)
        shares.changed(led)

    async def answers(self) -> dict[TopicIdPartition, Answer]:
        """The answer for each partition, once what it rests on is stored."""
        for part, storing in self._storing.items():
            error = await storing.wait()
            self._answers[part] = Answer(error)
            if not error:
                self._shares.count_acknowledged(self._group_id, self._types[part])
        failed = {topic for part, topic in self._topics.items() if self._answers[part].error}
        self._shares.count_topics(set(self._topics.values()), failed)
        return self._answers
