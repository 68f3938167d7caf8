"""From records to the next image: partitions of a topic, as Kafka's `TopicDelta` replays them."""

import pytest

from fencepost.coordinator.metadata.delta import MetadataCorrupt
from fencepost.coordinator.metadata.image import EMPTY_IMAGE, TopicImage
from fencepost.coordinator.metadata.image_fold import ImageFold
from fencepost.protocol.metadata_record_types import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

ID = bytes(range(16))


def partition(number: int) -> PartitionRecord:
    return PartitionRecord(number, ID, (1,), (1,), leader=1)


def topic_of(*records: PartitionRecord | PartitionChangeRecord) -> TopicImage:
    fold = ImageFold(EMPTY_IMAGE)
    for offset, record in enumerate([TopicRecord("t", ID), *records]):
        fold.replay(offset, record)
    return fold.apply(9).image.topics_by_name["t"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_partitions_come_in_any_order(order: tuple[int, ...]) -> None:
    assert topic_of(*map(partition, order)).partitions == 3


@pytest.mark.parametrize("twice", [(0, 0), (1, 1, 0), (1, 0, 1)])
def test_a_partition_comes_once(twice: tuple[int, ...]) -> None:
    with pytest.raises(MetadataCorrupt, match="cannot be added"):
        topic_of(*map(partition, twice))


@pytest.mark.parametrize("number", [0, 1])
def test_each_partition_can_be_changed(number: int) -> None:
    changed = topic_of(partition(0), partition(1), PartitionChangeRecord(number, ID, leader=2))
    assert [one.leader for one in changed.assignment] == [2 if one == number else 1 for one in (0, 1)]


@pytest.mark.parametrize("number", [-1, 2])
def test_a_partition_that_is_not_there_is_not_changed(number: int) -> None:
    with pytest.raises(MetadataCorrupt, match="no partition"):
        topic_of(partition(0), partition(1), PartitionChangeRecord(number, ID, leader=2))


@pytest.mark.parametrize("name", ["t", ""], ids=["of one topic", "of all"])
@pytest.mark.parametrize("apart", [False, True], ids=["in one change", "later"])
def test_eligible_leader_replicas_are_cleared(name: str, apart: bool) -> None:
    """KIP-966, Kafka's TopicsDelta.replay(ClearElrRecord): of one topic, or of all; one without any is as it was."""
    other = bytes(range(16, 32))
    fold = ImageFold(EMPTY_IMAGE)
    eligible = PartitionChangeRecord(0, ID, eligible_leader_replicas=(1,), last_known_elr=(2,))
    records = [
        TopicRecord("t", ID),
        partition(0),
        eligible,
        TopicRecord("u", other),
        partition(0)._replace(topic_id=other),
    ]
    for offset, record in enumerate(records):
        fold.replay(offset, record)
    if apart:
        fold = ImageFold(fold.apply(8).image)
    before = fold.image.topics_by_name.get("u")
    fold.replay(9, ClearElrRecord(name))
    image = fold.apply(10).image
    (cleared,) = image.topics_by_name["t"].assignment
    assert (cleared.eligible_leader_replicas, cleared.last_known_elr, cleared.leader) == ((), (), 1)
    if apart:
        assert image.topics_by_name["u"] is before


def test_of_a_topic_that_is_not_there_nothing_can_be_cleared() -> None:
    with pytest.raises(MetadataCorrupt, match="there is no topic nowhere"):
        ImageFold(EMPTY_IMAGE).replay(0, ClearElrRecord("nowhere"))
