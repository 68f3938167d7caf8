"""The partitions that a command line names."""

from typing import TYPE_CHECKING

from fencepost.cli.parameters import Place
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fencepost.client.admin import Admin
    from fencepost.protocol.topics import TopicPartition


def chosen_of(places: "Iterable[Place]", partitions: "Collection[TopicPartition]") -> "list[TopicPartition]":
    """Those of the partitions that the places name."""
    wanted = {*places}
    return [p for p in sorted(partitions) if Place(p.topic, None) in wanted or Place(p.topic, p.partition) in wanted]


async def partitions_of(admin: "Admin", places: "tuple[Place, ...]") -> "list[TopicPartition]":
    """The partitions that the places name. Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION)."""
    from fencepost.client.admin.client import parts_of
    from fencepost.client.admin.last_stable_offset import check_exists

    described = await admin.describe_topics({place.topic for place in places})
    there = [TopicPartition(name, n) for name, one in described.items() for n in range(len(one.partitions))]
    for topic, number in places:
        if number is not None:
            await check_exists(parts_of(admin), TopicPartition(topic, number))
    return chosen_of(places, there)
