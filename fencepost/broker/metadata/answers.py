"""A cache of the encoded topics in Metadata responses: with ten thousand topics encoding them is most of the work.

A topic's image is an immutable value, so its encoded form is valid as long as the metadata image holds the same object.
Partitions that differ only in their index are encoded once; the index is then set in the bytes.
"""

from collections.abc import Callable, Iterable

from fencepost.coordinator.metadata.image import MetadataImage, PartitionImage, TopicImage
from fencepost.protocol.messages.api03_metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.varints import put_varint

VERSIONS_KEPT = 4
"""How many versions of the response are cached at a time."""
_INDEX_AT, _INDEX_END = 2, 6
"""The position of a partition's index, after its error code."""


class MetadataAnswers:
    """Encoded topics by version; encoded on first use, and again after a topic changes."""

    def __init__(self) -> None:
        self._topics: dict[tuple[int, int], dict[bytes, tuple[TopicImage, bytes]]] = {}
        self._whole: dict[tuple[int, int], tuple[MetadataImage, list[bytes]]] = {}

    def forget(self) -> None:
        """Encode everything again: leaders changed."""
        self._topics.clear()
        self._whole.clear()

    def parts(
        self,
        response: MetadataResponse,
        image: MetadataImage,
        version: int,
        operations: int,
        led: Callable[[TopicImage], TopicImage] = lambda topic: topic,
    ) -> list[bytes]:
        """The bytes of `response`, which must have no topics, with all topics of `image` inserted.

        `led` returns a topic with its leaders.
        """
        key = version, operations
        known = self._whole.get(key)
        if known is None or known[0].topics_by_id is not image.topics_by_id:
            body = self._encoded(map(led, image.topics_by_id.values()), version, operations)
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
    """A topic encoded as an element of the topics array; `operations` are the authorized operations."""
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
    """The bytes before and after the array of topics, for a response without topics."""
    whole = MetadataResponse.encode(response, version)
    after = (4 if 8 <= version <= 10 else 0) + (2 if version >= 13 else 0) + (1 if version >= 9 else 0)
    return whole[: len(whole) - after - _count_size(version)], whole[len(whole) - after :]


def _count(number: int, version: int) -> bytes:
    return put_varint(number + 1) if version >= 9 else number.to_bytes(4, "big")


def _count_size(version: int) -> int:
    """The size of the length field of an array with at most one element, in bytes."""
    return 1 if version >= 9 else 4
