"""The topics of a Metadata answer as bytes that are kept: with ten thousand topics they are most of the work.

A topic's image is a value, so what was encoded of it once holds as long as the image has that very object. Partitions
that are alike in all but their number are encoded once and numbered in place.
"""

from collections.abc import Iterable

from fencepost.coordinator.metadata.image import MetadataImage, PartitionImage, TopicImage
from fencepost.protocol.messages.api03_metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.varints import put_varint

VERSIONS_KEPT = 4
"""Versions of clients whose answers are kept at a time."""
_INDEX_AT, _INDEX_END = 2, 6
"""Where a partition's number stands, behind its error code."""


class MetadataAnswers:
    """Encoded topics by version; made when first asked for, and again when a topic is another."""

    def __init__(self) -> None:
        self._topics: dict[tuple[int, int], dict[bytes, tuple[TopicImage, bytes]]] = {}
        self._whole: dict[tuple[int, int], tuple[MetadataImage, list[bytes]]] = {}

    def parts(self, response: MetadataResponse, image: MetadataImage, version: int, operations: int) -> list[bytes]:
        """The bytes of `response`, which names no topics, with all topics of `image` in it."""
        key = version, operations
        known = self._whole.get(key)
        if known is None or known[0].topics_by_id is not image.topics_by_id:
            body = self._encoded(image.topics_by_id.values(), version, operations)
            known = self._whole[key] = image, body
        head, tail = _around_topics(response, version)
        return [head + _count(len(image.topics_by_id), version), *known[1], tail]

    def _encoded(self, topics: Iterable[TopicImage], version: int, operations: int) -> list[bytes]:
        key = version, operations
        before = self._topics.get(key, {})
        while key not in self._topics and len(self._topics) >= VERSIONS_KEPT:
            oldest = next(iter(self._topics))
            del self._topics[oldest]
            self._whole.pop(oldest, None)
        kept = self._topics[key] = {}
        for topic in topics:
            found = before.get(topic.topic_id)
            if found is None or found[0] is not topic:
                found = topic, encoded_topic(topic, version, operations)
            kept[topic.topic_id] = found
        return [b"".join([encoded for _, encoded in kept.values()])]


def encoded_topic(topic: TopicImage, version: int, operations: int) -> bytes:
    """A topic as it stands in the array of topics of that version; `operations` are the authorized ones."""
    value = MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.internal, topic_authorized_operations=operations
    )
    bare = _element(value, version)
    after = (4 if version >= 8 else 0) + (1 if version >= 9 else 0)  # the authorized operations and the tags
    head, tail = bare[: len(bare) - after - _count_size(version)], bare[len(bare) - after :]
    parts = [head, _count(topic.partitions, version)]
    forms: dict[PartitionImage, tuple[bytes, bytes]] = {}
    for number, partition in enumerate(topic.assignment):
        form = forms.get(partition)
        if form is None:
            value.partitions = [partition_value(0, partition)]
            one = _element(value, version)
            encoded = one[len(bare) - after : len(one) - after]
            form = forms[partition] = encoded[:_INDEX_AT], encoded[_INDEX_END:]
        parts += (form[0], number.to_bytes(4, "big"), form[1])
    return b"".join([*parts, tail])


def partition_value(number: int, partition: PartitionImage) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=number,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
    )


def _element(topic: MetadataResponseTopic, version: int) -> bytes:
    """The bytes of one topic in the array."""
    response = MetadataResponse(topics=[topic])
    whole = MetadataResponse.encode(response, version)
    response.topics = []
    head, tail = _around_topics(response, version)
    return whole[len(head) + _count_size(version) : len(whole) - len(tail)]


def _around_topics(response: MetadataResponse, version: int) -> tuple[bytes, bytes]:
    """What stands before and behind the array of topics, for a response that has none in it."""
    whole = MetadataResponse.encode(response, version)
    after = (4 if 8 <= version <= 10 else 0) + (2 if version >= 13 else 0) + (1 if version >= 9 else 0)
    return whole[: len(whole) - after - _count_size(version)], whole[len(whole) - after :]


def _count(number: int, version: int) -> bytes:
    return put_varint(number + 1) if version >= 9 else number.to_bytes(4, "big")


def _count_size(version: int) -> int:
    """The size of the length of an array of none or one."""
    return 1 if version >= 9 else 4
