"""Dead letters: what stands in a dead-letter topic of the records that a share group gave up (KIP-1191). Pure.

Kafka's `ShareGroupDLQStateManager`: its headers, its checks of the topic, and its batches.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from fencepost.broker.share.values import DeadLetters
from fencepost.coordinator.metadata.commands import NewTopic, Outcome
from fencepost.protocol.batch_header import HEADER_SIZE
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import NewRecord, encode_records
from fencepost.protocol.topics import TopicPartition

ENABLED = "errors.deadletterqueue.group.enable"
"""The setting of a topic that permits share groups to write dead letters to it."""
TOPIC_CONFIGS = {ENABLED: "true", "message.timestamp.type": "CreateTime"}
"""The settings of a dead-letter topic that the broker creates (`createTopicBuilder`)."""
_OFFSET_BYTES = 3
"""How much longer a record may be inside a batch than as its first one: its offset delta takes more bytes there."""

Copies = Mapping[int, tuple[bytes | None, bytes | None]]
"""Key and value of records, by their offsets."""


class OtherLeaders(Protocol):
    """The other brokers, which may lead a dead-letter topic."""

    async def append(self, broker: int, tp: TopicPartition, batch: bytearray) -> Outcome:
        """Return when one batch is durable in the log of its leader, or why it is not."""

    async def create(self, topic: NewTopic) -> Outcome:
        """Have the controller create a topic; this broker knows it afterwards."""


class TopicRules(NamedTuple):
    """What decides whether a group may write to its dead-letter topic."""

    prefix: str
    """errors.deadletterqueue.topic.name.prefix: how the topic's name has to begin."""
    auto_create: bool
    """errors.deadletterqueue.auto.create.topics.enable."""
    exists: bool
    enabled: bool
    """Whether the topic has `ENABLED`."""


def topic_problem(group_id: str, topic: str | None, rules: TopicRules) -> str | None:
    """Why a group cannot write dead letters to `topic`, or None (`validateDlqTopic`, with its messages)."""
    if not topic:
        return f"Configured DLQ topic name in share group: {group_id} is empty."
    if topic.startswith("__"):
        return f"Configured DLQ topic name in share group: {group_id} cannot start with __, topic: {topic}."
    if rules.exists and not rules.enabled:
        return (
            f"DLQ is not enabled on configured DLQ topic for share group: {group_id}, topic: {topic}."
            f" Set {ENABLED}=true on the topic."
        )
    if not rules.exists and not rules.auto_create:
        return (
            "DLQ topic does not exist and auto create is disabled on cluster for share group:"
            f" {group_id}, topic: {topic}. Create it with {ENABLED}=true."
        )
    if not topic.startswith(rules.prefix):
        return (
            "Configured DLQ topic name does not comply with the DLQ topic prefix in share group:"
            f" {group_id}, topic: {topic}, prefix: {rules.prefix}."
        )
    return None


def headers(group_id: str, tp: TopicPartition, dead: DeadLetters, offset: int) -> tuple[tuple[str, bytes], ...]:
    """The headers of one dead letter, all of them text (`ProduceRequestHandler.headers`)."""
    return (
        ("__dlq.errors.topic", tp.topic.encode()),
        ("__dlq.errors.partition", b"%d" % tp.partition),
        ("__dlq.errors.offset", b"%d" % offset),
        ("__dlq.errors.group", group_id.encode()),
        ("__dlq.errors.delivery.count", b"%d" % dead.delivery_count),
        ("__dlq.errors.message", dead.cause.encode()),
    )


def batches(
    group_id: str,
    tp: TopicPartition,
    dead: DeadLetters,
    offsets: Iterable[int],
    copies: Copies,
    now_ms: int,
    max_bytes: int,
) -> Iterator[bytearray]:
    """The batches to append, with the letters of `offsets` in their order (`topicProduceData`).

    A copy that does not fit a batch of `max_bytes` is left out: that letter has its headers only.
    """
    taken: list[NewRecord] = []
    size = HEADER_SIZE
    for offset in offsets:
        said = headers(group_id, tp, dead, offset)
        record: NewRecord = (now_ms, *copies.get(offset, (None, None)), said)
        added = _size(record)
        if HEADER_SIZE + added > max_bytes:
            record = (now_ms, None, None, said)
            added = _size(record)
        if taken and size + added > max_bytes:
            yield build_batch(taken)
            taken, size = [], HEADER_SIZE
        taken.append(record)
        size += added
    if taken:
        yield build_batch(taken)


def _size(record: NewRecord) -> int:
    return len(encode_records([record], record[0])[0]) + _OFFSET_BYTES
