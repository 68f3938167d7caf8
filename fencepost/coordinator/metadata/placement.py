"""Who leads what when the number of cores changes, between two starts or while they run. Pure.

The metadata says which brokers there were at the last start, and who leads what. From these and the node ids of today
every process computes the same, also after a crash in between.
"""

from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence

from fencepost.coordinator.metadata.image import MetadataImage, TopicImage
from fencepost.coordinator.metadata.reassignments import assigned
from fencepost.protocol.metadata_entries import MetadataEntry
from fencepost.protocol.metadata_record_types import UnregisterBrokerRecord
from fencepost.protocol.topics import TopicPartition


def new_leaders(
    image: MetadataImage, node_ids: Sequence[int], known: Collection[int] | None = None
) -> dict[TopicPartition, int]:
    """The partitions whose leader changes, with the new one; none if the brokers are those of the last start.

    Partitions of brokers that are gone go to the others. If there are more brokers than before, each topic is spread
    over all of them, and no more partitions are moved than that needs. A single broker leads all. `known` are the
    brokers before; None: those of the metadata.
    """
    moved: dict[TopicPartition, int] = {}
    spread = not set(_leaders(image) | image.brokers.keys() if known is None else known) >= set(node_ids)
    totals = Counter(dict.fromkeys(node_ids, 0))
    for name in sorted(image.topics_by_name):
        topic = image.topics_by_name[name]
        leaders = _spread(topic, totals, spread)
        totals.update(leaders)
        for number, leader in enumerate(leaders):
            if leader != topic.assignment[number].leader:
                moved[TopicPartition(name, number)] = leader
    return moved


def _spread(topic: TopicImage, totals: Counter[int], again: bool) -> list[int]:
    """The leader of each partition; `totals` are how many partitions of other topics each broker leads by now."""
    nodes = list(totals)
    led = Counter(dict.fromkeys(nodes, 0))
    led.update(one.leader for one in topic.assignment if one.leader in totals)
    each, rest = divmod(topic.partitions, len(nodes))
    most = dict.fromkeys(nodes, each if again else topic.partitions)
    if again:  # the brokers that lead the fewest so far get one more; of equal ones those that have one more now
        for node in sorted(nodes, key=lambda node: (totals[node], led[node] <= each))[:rest]:
            most[node] += 1
    kept: Counter[int] = Counter()
    leaders: list[int | None] = []
    for one in topic.assignment:
        stays = one.leader in totals and kept[one.leader] < most[one.leader]
        leaders.append(one.leader if stays else None)
        kept[one.leader] += stays
    found = []
    for leader in leaders:
        if leader is None:
            leader = min(nodes, key=lambda node: (kept[node] >= most[node], kept[node], totals[node]))
            kept[leader] += 1
        found.append(leader)
    return found


def placement_records(
    image: MetadataImage, node_ids: Sequence[int], moved: Mapping[TopicPartition, int]
) -> list[MetadataEntry]:
    """The records that make `moved` known, and that brokers are gone (KIP-631; the leader epoch rises by one).

    Moves that were under way to these brokers are given up.
    """
    partitions = {
        TopicPartition(topic.name, number): (topic.topic_id, one)
        for topic in image.topics_by_name.values()
        for number, one in enumerate(topic.assignment)
        if one.adding_replicas or TopicPartition(topic.name, number) in moved
    }
    changes = [assigned(tp.partition, *partitions[tp], (leader,), leader) for tp, leader in moved.items()]
    given_up = [
        assigned(tp.partition, topic_id, one, (one.leader,))
        for tp, (topic_id, one) in partitions.items()
        if tp not in moved and not set(one.adding_replicas) <= set(node_ids)
    ]
    return [*changes, *given_up, *_unregistered(image, node_ids)]


def resizing_records(image: MetadataImage, before: Collection[int], node_ids: Sequence[int]) -> list[MetadataEntry]:
    """The same for brokers that run: moves to these brokers begin, and those to others are given up (KIP-455).

    `before` are the brokers that partitions were placed on. While there are no more than these, moves that are under
    way go on. Brokers that are gone are unregistered as soon as they lead nothing.
    """
    moved, ids = new_leaders(image, node_ids, before), set(node_ids)
    changes: list[MetadataEntry] = []
    for topic in image.topics_by_name.values():
        for number, now in enumerate(topic.assignment):
            leader = moved.get(TopicPartition(topic.name, number), now.leader)
            target = now.adding_replicas[0] if now.adding_replicas else now.leader
            goes_on = now.adding_replicas and ids.issuperset(now.adding_replicas) and ids <= set(before)
            if leader != target and not goes_on:
                changes.append(assigned(number, topic.topic_id, now, (leader,)))
    return [*changes, *_unregistered(image, ids | _leaders(image))]


def _leaders(image: MetadataImage) -> set[int]:
    return {one.leader for topic in image.topics_by_name.values() for one in topic.assignment}


def _unregistered(image: MetadataImage, stay: Container[int]) -> list[UnregisterBrokerRecord]:
    return [
        UnregisterBrokerRecord(node, record.broker_epoch) for node, record in image.brokers.items() if node not in stay
    ]
