"""Topics and the leaders of their partitions, as the client knows them; and which of two responses is newer."""

from typing import NamedTuple

from fencepost.protocol.topics import TopicPartition

NO_LEADER = -1


class PartitionInfo(NamedTuple):
    """A partition's leader and replicas; `leader` is -1 if there is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicInfo(NamedTuple):
    """One topic of the last Metadata response; `partitions` by number, `topic_id` zero on old brokers."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    internal: bool


def check_topic_name(topic: object) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"a topic's name must be str, not {type(topic).__name__}")


def by_partition(topic: TopicInfo) -> dict[TopicPartition, PartitionInfo]:
    return {TopicPartition(topic.name, number): info for number, info in enumerate(topic.partitions)}


def newer_of(old: tuple[PartitionInfo, ...], received: tuple[PartitionInfo, ...]) -> tuple[PartitionInfo, ...]:
    """The received partitions, except those with a later leader in `old`: brokers get metadata at different times.

    Without epochs (-1, before Kafka 2.1), or where the topic may have been created again under the same name (no topic
    ids), what was received counts.
    """
    return (
        tuple(
            before if -1 < one.leader_epoch < before.leader_epoch else one
            for before, one in zip(old, received, strict=False)
        )
        + received[len(old) :]
    )
