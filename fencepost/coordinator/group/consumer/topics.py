"""What subscriptions mean in the cluster as it is: names and regular expressions become topics, topics a hash."""

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
    """The ids of those of the topics that exist."""
    topics = image.topics_by_name
    return frozenset(topics[name].topic_id for name in names if name in topics)


def metadata_hash(names: Collection[str], image: MetadataImage) -> int:
    """One number for what the subscribed topics look like; 0 where none exists.

    A signed 64-bit number, as the record has it. Its value means something only to the broker that wrote it: another
    one that reads it finds it changed and assigns once more, which is harmless, so it need not be Kafka's XXH3.
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
