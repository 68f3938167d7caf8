"""What is known of topics and who leads their partitions; and which of two tellings is the newer one."""

from typing import NamedTuple

from fencepost.protocol.topics import TopicPartition

NO_LEADER = -1


class PartitionInfo(NamedTuple):
    """Who leads a partition; `leader` is -1 while nobody does."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicInfo(NamedTuple):
    """One topic as the last Metadata answer told it; `partitions` by number, `topic_id` zero on old brokers."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    internal: bool


def by_partition(topic: TopicInfo) -> dict[TopicPartition, PartitionInfo]:
    """The partitions of a topic in order."""
    return {TopicPartition(topic.name, number): info for number, info in enumerate(topic.partitions)}


def newer_of(old: tuple[PartitionInfo, ...], told: tuple[PartitionInfo, ...]) -> tuple[PartitionInfo, ...]:
    """What was told, but for partitions of which a later leader is known already: brokers learn at different times.

    Where epochs are not told at all (-1, before Kafka 2.1) or the topic could have been made anew under the same name
    (no topic ids), what is told counts.
    """
    return (
        tuple(
            before if -1 < one.leader_epoch < before.leader_epoch else one
            for before, one in zip(old, told, strict=False)
        )
        + told[len(old) :]
    )
