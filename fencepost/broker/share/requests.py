"""Acknowledgements of a request: which are valid, what becomes of the records, and the answer when that is stored."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from fencepost.broker.brokers import other_leader
from fencepost.broker.network.context import LargeWork, RequestContext
from fencepost.broker.network.large_requests import LargeRequest
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics
from fencepost.broker.share.led import Storing
from fencepost.broker.share.partitions import SharePartitions
from fencepost.broker.share.sessions import MemberKey, TopicIdPartition
from fencepost.broker.share.values import DELAY_MS_MAX, AckBatch, AckType, Refused
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.topics import TopicPartition

PartT = TypeVar("PartT")
EndpointT = TypeVar("EndpointT")

RENEW_SINCE = 2
MEMBER_ID_MAX = 36
"""Kafka's KafkaApis.isMemberIdValid: as long as the text of a UUID."""
STEP_PARTITIONS = 100
"""Partitions that are handled without a pause: a few milliseconds."""
ResultT = TypeVar("ResultT")


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


def names_in_steps(
    node: Broker, context: RequestContext, parts: Sequence[TopicIdPartition]
) -> Generator[None, None, dict[TopicIdPartition, TopicPartition | ErrorCode]]:
    """As `named`, with pauses."""
    found: dict[TopicIdPartition, TopicPartition | ErrorCode] = {}
    for start in range(0, len(parts), STEP_PARTITIONS):
        found |= named(node, context, parts[start : start + STEP_PARTITIONS])
        yield
    return found


def pause_in(node: Broker, context: RequestContext, partitions: int) -> None:
    """Have a request that concerns this number of partitions handled and encoded with pauses, unless they are few.

    A small request of a session with many of them is large, too.
    """
    if context.large is None and partitions > STEP_PARTITIONS:
        context.large = LargeRequest(node.large_requests, None)


async def in_steps(large: LargeWork | None, steps: Generator[None, None, ResultT]) -> ResultT:
    """Do the steps of a request, with a pause after each if it is large; else without a checkpoint."""
    if large is not None:
        return await large.run(steps)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: ResultT = done.value
            return result


class Batch(Protocol):
    """An AcknowledgementBatch of either request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class ReleasingBatch(Batch, Protocol):
    """One whose released records may be held back."""

    delay_ms: int


def batches_of(topics: Iterable[Any]) -> dict[TopicIdPartition, Sequence[Any]]:
    """The acknowledgements of each partition that a request names."""
    return {
        TopicIdPartition(topic.topic_id, part.partition_index): part.acknowledgement_batches
        for topic in topics
        for part in topic.partitions
    }


def by_topic(answers: Mapping[TopicIdPartition, PartT]) -> dict[bytes, list[PartT]]:
    """The partitions' parts of a response, by the ids of their topics."""
    topics: dict[bytes, list[PartT]] = {}
    for part, answer in answers.items():
        topics.setdefault(part.topic_id, []).append(answer)
    return topics


class NamesLeader(Protocol):
    """A partition's part of a response."""

    error_code: int
    current_leader: Any


def name_leaders(
    node: Broker,
    context: RequestContext,
    answers: Mapping[TopicIdPartition, NamesLeader],
    endpoint: Callable[..., EndpointT],
) -> list[EndpointT]:
    """Add the leaders of partitions that are led elsewhere (KIP-951); return the endpoints of those brokers."""
    found: dict[int, EndpointT] = {}
    for part, answer in answers.items():
        if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            continue
        if (name := node.metadata.topic_name(part.topic_id)) is not None:
            leader = other_leader(node, context, TopicPartition(name, part.partition))
            if leader is not None:
                answer.current_leader.leader_id, answer.current_leader.leader_epoch = leader.node_id, leader.epoch
                found[leader.node_id] = endpoint(
                    node_id=leader.node_id, host=leader.host, port=leader.port, rack=leader.rack
                )
    return list(found.values())


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
    """The acknowledgements of one request. They take effect by `take`; `answers` waits for the store."""

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
        self._shares = shares
        self._types: dict[TopicIdPartition, Counter[int]] = {}
        self._member, self._asked, self._names = member, asked, names
        self._may_renew, self._is_renewal = may_renew, is_renewal
        self._topics = {part: name.topic for part in asked if isinstance(name := names[part], TopicPartition)}

    def take(self) -> Generator[None, None, None]:
        """Have them take effect, with pauses between partitions."""
        for number, (part, batches) in enumerate(self._asked.items(), 1):
            name = self._names[part]
            if problem(batches, self._may_renew, self._is_renewal) or wrong_delay(batches):
                self._answers[part] = Answer(ErrorCode.INVALID_REQUEST)
            elif isinstance(name, ErrorCode):
                self._answers[part] = Answer(name)
            elif not batches:
                self._answers[part] = Answer()
            else:
                self._acknowledge(part, batches)
            if number % STEP_PARTITIONS == 0:
                yield

    def _acknowledge(self, part: TopicIdPartition, batches: Sequence[ReleasingBatch]) -> None:
        shares, member = self._shares, self._member
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
                self._shares.count_acknowledged(self._member.group_id, self._types[part])
        failed = {topic for part, topic in self._topics.items() if self._answers[part].error}
        self._shares.count_topics(set(self._topics.values()), failed)
        return self._answers
