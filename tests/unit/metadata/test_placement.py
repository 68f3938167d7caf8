"""Who leads what when the number of cores has changed: generated topics and numbers of cores."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fencepost.coordinator.metadata.image import MetadataImage, PartitionImage, TopicImage
from fencepost.coordinator.metadata.image_fold import changed_partition
from fencepost.coordinator.metadata.placement import new_leaders, placement_records, resizing_records
from fencepost.protocol.metadata_entries import MetadataEntry
from fencepost.protocol.metadata_record_types import (
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from fencepost.protocol.topics import TopicPartition

CORES = st.integers(1, 6)
NO_CHANGE = -2
LEADERS = st.dictionaries(st.text("abc", min_size=1), st.lists(st.integers(0, 5), min_size=1, max_size=20), max_size=8)


def image_of(topics: dict[str, list[int]], brokers: int) -> MetadataImage:
    """Each topic with the leaders of its partitions, all below the number of registered brokers."""
    by_name = {
        name: TopicImage(
            name,
            name.encode().ljust(16, b"."),
            tuple(PartitionImage((one % brokers,), (one % brokers,), leader=one % brokers) for one in leaders),
        )
        for name, leaders in topics.items()
    }
    registered = {node: RegisterBrokerRecord(node, False, bytes(16), 100 + node) for node in range(brokers)}
    return MetadataImage(0, by_name, {one.topic_id: one for one in by_name.values()}, brokers=registered)


def leaders_after(image: MetadataImage, moved: dict[TopicPartition, int]) -> dict[str, list[int]]:
    return {
        name: [moved.get(TopicPartition(name, number), one.leader) for number, one in enumerate(topic.assignment)]
        for name, topic in image.topics_by_name.items()
    }


def as_it_is_then(image: MetadataImage, cores: int) -> MetadataImage:
    return image_of(leaders_after(image, new_leaders(image, range(cores))), cores)


@given(LEADERS, CORES, CORES)
def test_each_partition_has_a_leader_of_today(topics: dict[str, list[int]], before: int, cores: int) -> None:
    image = image_of(topics, before)
    moved = new_leaders(image, range(cores))
    after = leaders_after(image, moved)
    assert all(leader in range(cores) for leaders in after.values() for leader in leaders)
    assert all(image.topics_by_name[tp.topic].assignment[tp.partition].leader != new for tp, new in moved.items())


@given(LEADERS, CORES, CORES)
def test_the_same_start_again_moves_nothing(topics: dict[str, list[int]], before: int, cores: int) -> None:
    """A crash after the metadata were written, and any later start."""
    assert new_leaders(as_it_is_then(image_of(topics, before), cores), range(cores)) == {}


@given(LEADERS, CORES)
def test_a_placement_by_hand_stays(topics: dict[str, list[int]], cores: int) -> None:
    """`kafka-reassign-partitions.sh` may have put all on one core."""
    assert new_leaders(image_of(topics, cores), range(cores)) == {}


@given(LEADERS, CORES, CORES)
def test_with_fewer_cores_only_the_partitions_of_the_gone_ones_move(
    topics: dict[str, list[int]], before: int, fewer: int
) -> None:
    cores = min(before, fewer)
    image = image_of(topics, before)
    gone = {
        TopicPartition(name, number)
        for name, topic in image.topics_by_name.items()
        for number, one in enumerate(topic.assignment)
        if one.leader >= cores
    }
    assert new_leaders(image, range(cores)).keys() == gone


@given(LEADERS, CORES, CORES)
def test_with_more_cores_each_topic_is_spread_and_no_more_moves_than_must(
    topics: dict[str, list[int]], before: int, more: int
) -> None:
    cores = before + more
    image = image_of(topics, before)
    moved = new_leaders(image, range(cores))
    for name, leaders in leaders_after(image, moved).items():
        led = Counter(dict.fromkeys(range(cores), 0) | Counter(leaders))
        assert max(led.values()) - min(led.values()) <= 1
        had = Counter(one.leader for one in image.topics_by_name[name].assignment)
        must = sum(max(0, count - led[core]) for core, count in had.items())
        assert sum(tp.topic == name for tp in moved) == must


def test_topics_of_one_partition_are_spread_too() -> None:
    image = image_of({f"t{number}": [0] for number in range(9)}, 1)
    after = leaders_after(image, new_leaders(image, range(3)))
    assert Counter(leader for (leader,) in after.values()) == {0: 3, 1: 3, 2: 3}


def test_brokers_that_were_never_registered_count_by_what_they_lead() -> None:
    """The first start has placed the internal topics before any broker is registered."""
    image = image_of({"t": [0, 1, 2]}, 3)
    assert new_leaders(MetadataImage(0, image.topics_by_name, image.topics_by_id), range(3)) == {}


def test_a_new_leader_raises_the_leader_epoch_and_gone_brokers_are_unregistered() -> None:
    """PartitionChangeBuilder (the leader epoch rises with a new leader); UnregisterBrokerRecord of KIP-866."""
    image = image_of({"t": [0, 2]}, 3)
    moved = new_leaders(image, range(2))
    change, gone = placement_records(image, range(2), moved)
    assert isinstance(change, PartitionChangeRecord)
    assert gone == UnregisterBrokerRecord(2, 102)
    before = image.topics_by_name["t"].assignment[1]
    after = changed_partition(before, change)
    assert (after.leader, after.replicas, after.isr) == (1, (1,), (1,))
    assert after.leader_epoch == before.leader_epoch + 1


def with_moves(image: MetadataImage, targets: list[int]) -> MetadataImage:
    """Moves are under way: of the partition with each number, in all topics, to the target at this place."""
    by_name = {
        name: replace(
            topic,
            assignment=tuple(
                one
                if number >= len(targets) or targets[number] == one.leader
                else one._replace(replicas=(targets[number], one.leader), adding_replicas=(targets[number],))
                for number, one in enumerate(topic.assignment)
            ),
        )
        for name, topic in image.topics_by_name.items()
    }
    return replace(image, topics_by_name=by_name, topics_by_id={one.topic_id: one for one in by_name.values()})


def changed(image: MetadataImage, records: list[MetadataEntry]) -> MetadataImage:
    """The image with these records; moves end at once."""
    by_id = dict(image.topics_by_id)
    gone = {one.broker_id for one in records if isinstance(one, UnregisterBrokerRecord)}
    for record in records:
        if isinstance(record, PartitionChangeRecord):
            topic = by_id[record.topic_id]
            parts = list(topic.assignment)
            parts[record.partition_id] = changed_partition(parts[record.partition_id], record)
            by_id[record.topic_id] = replace(topic, assignment=tuple(parts))
    for key, topic in by_id.items():
        ended = tuple(
            PartitionImage(one.adding_replicas, one.adding_replicas, leader=one.adding_replicas[0])
            if one.adding_replicas
            else one
            for one in topic.assignment
        )
        by_id[key] = replace(topic, assignment=ended)
    brokers = {node: one for node, one in image.brokers.items() if node not in gone}
    return replace(image, topics_by_id=by_id, topics_by_name={one.name: one for one in by_id.values()}, brokers=brokers)


@given(LEADERS, CORES, CORES, st.lists(st.integers(0, 5), max_size=20))
def test_a_change_while_they_run_ends_with_the_cores_that_are_wanted(
    topics: dict[str, list[int]], before: int, after: int, targets: list[int]
) -> None:
    """KIP-455, KIP-866: moves begin and the leaders stay; a core that leads nothing any more is unregistered."""
    image = with_moves(image_of(topics, before), [one % before for one in targets])
    first = resizing_records(image, range(before), range(after))
    leaders = {one.leader for topic in image.topics_by_name.values() for one in topic.assignment}
    assert not leaders & {one.broker_id for one in first if isinstance(one, UnregisterBrokerRecord)}
    assert {one.leader for one in first if isinstance(one, PartitionChangeRecord)} <= {NO_CHANGE}
    image = changed(image, first)
    assert all(one.leader < after for topic in image.topics_by_name.values() for one in topic.assignment)
    second = resizing_records(image, range(after), range(after))
    assert all(isinstance(one, UnregisterBrokerRecord) for one in second)
    assert changed(image, second).brokers.keys() == set(range(min(before, after)))
    if after > before:
        for topic in image.topics_by_name.values():
            led = Counter(dict.fromkeys(range(after), 0)) + Counter(one.leader for one in topic.assignment)
            assert max(led[core] for core in range(after)) - min(led[core] for core in range(after)) <= 1


@given(LEADERS, CORES, CORES)
def test_it_moves_what_a_start_would_move(topics: dict[str, list[int]], before: int, after: int) -> None:
    image = image_of(topics, before)
    records = resizing_records(image, range(before), range(after))
    found = {
        TopicPartition(image.topics_by_id[one.topic_id].name, one.partition_id): one.adding_replicas
        for one in records
        if isinstance(one, PartitionChangeRecord)
    }
    assert found == {tp: (leader,) for tp, leader in new_leaders(image, range(after)).items()}
