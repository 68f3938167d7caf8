"""From subscriptions to existing topics: names and regular expressions become topics, topics become a hash."""

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

from fencepost.coordinator.group.consumer.member import ConsumerMember
from fencepost.coordinator.group.consumer.records import ResolvedRegex
from fencepost.coordinator.metadata.image import MetadataImage, TopicImage

_HASH_BYTES = 8


def subscribed_names(member: ConsumerMember, resolved: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    """The topics that a member names or matches; a regular expression that is not resolved yet matches none."""
    found = resolved.get(member.regex) if member.regex else None
    return member.topics if found is None else member.topics | found.topics


def topic_ids(names: Iterable[str], image: MetadataImage) -> frozenset[bytes]:
    topics = image.topics_by_name
    return frozenset(topics[name].topic_id for name in names if name in topics)


def metadata_hash(names: Collection[str], image: MetadataImage) -> int:
    """A hash of the ids, names and partition counts of the subscribed topics; 0 if none exists.

    A signed 64-bit number, as the record has it. Only brokers with the same hash function compare it: another one finds
    a change and assigns once more, which is harmless, so it need not be Kafka's XXH3.
    """
    topics = [image.topics_by_name[name] for name in sorted(names) if name in image.topics_by_name]
    if not topics:
        return 0
    whole = blake2b(digest_size=_HASH_BYTES)
    for topic in topics:
        whole.update(_topic_bytes(topic))
    return int.from_bytes(whole.digest(), "big", signed=True)


def _topic_bytes(topic: TopicImage) -> bytes:
    name = topic.name.encode()
    return topic.topic_id + len(name).to_bytes(4, "big") + name + topic.partitions.to_bytes(4, "big")
