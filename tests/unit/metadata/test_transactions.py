"""KIP-868 at the loader: whole transactions or nothing, and the cases that Kafka's own loader gets wrong (E.5)."""

import pytest

from fencepost.coordinator.metadata.delta import (
    BrokerConfigChanged,
    FeaturesChanged,
    MetadataCorrupt,
    PartitionsAdded,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from fencepost.coordinator.metadata.transactions import MetadataLoader, OpenTransaction
from fencepost.protocol.metadata_record_types import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

BEGIN, END, ABORT = BeginTransactionRecord("t"), EndTransactionRecord(), AbortTransactionRecord("r")


def topic(name: str, partitions: int = 1) -> list[MetadataRecord]:
    topic_id = name.encode().ljust(16, b"\0")
    return [
        TopicRecord(name, topic_id),
        *(PartitionRecord(n, topic_id, (1,), (1,), leader=1) for n in range(partitions)),
    ]


class Feeder:
    """Feeds batches one behind the other and notes what was visible after each."""

    def __init__(self) -> None:
        self.loader = MetadataLoader()
        self.seen: list[set[str]] = []

    def feed(self, *batches: list[MetadataRecord]) -> "Feeder":
        for batch in batches:
            self.loader.load_batch(self.loader.next_offset, batch)
            self.seen.append(set(self.loader.image.topics_by_name))
        return self


def test_nothing_of_a_transaction_shows_before_its_end() -> None:
    """S0 "Record Visibility": a partial transaction must not be exposed; the published offset never lies inside one."""
    feeder = Feeder().feed([*topic("a")], [BEGIN, *topic("b")])
    assert feeder.loader.image.offset == 2
    assert feeder.loader.open == OpenTransaction(2, "t")
    assert feeder.loader.last_stable_offset == 2, "LSO is the Begin while it is open (E.3)"
    feeder.feed(topic("c"), [END])
    assert feeder.seen == [{"a"}, {"a"}, {"a"}, {"a", "b", "c"}]
    assert feeder.loader.last_stable_offset == feeder.loader.next_offset == 8


def test_what_stands_before_a_begin_in_the_same_batch_shows() -> None:
    """E.4: a Begin that is not first publishes what came before it."""
    feeder = Feeder().feed([*topic("a"), BEGIN, *topic("b")])
    assert feeder.seen == [{"a"}]
    assert feeder.loader.image.offset == 2


def test_e5_case_1_an_aborted_transaction_never_shows() -> None:
    feeder = Feeder().feed([BEGIN, *topic("aborted")], [ABORT])
    assert feeder.seen == [set(), set()]
    assert feeder.loader.image.offset == 4, "the offset moves all the same"


def test_e5_case_2_abort_then_begin_in_one_batch() -> None:
    """Kafka 4.4's loader publishes the aborted topic here, twice."""
    feeder = Feeder().feed([BEGIN, *topic("aborted")], [ABORT, BEGIN, *topic("ok"), END])
    assert feeder.seen == [set(), {"ok"}]


def test_e5_case_3_abort_and_more_before_the_next_look() -> None:
    feeder = Feeder().feed([BEGIN, *topic("aborted"), ABORT, *topic("ok")])
    assert feeder.seen == [{"ok"}]


def test_an_abort_takes_back_every_kind_of_record() -> None:
    """S0 "Controller Failover": the state is as before the Begin."""
    feeder = Feeder().feed([*topic("a", 2), ConfigRecord(2, "a", "x", "1"), FeatureLevelRecord("f", 1)])
    before = feeder.loader.image
    feeder.feed(
        [
            BEGIN,
            RemoveTopicRecord(before.topics_by_name["a"].topic_id),
            *topic("b"),
            ConfigRecord(4, "", "y", "2"),
            FeatureLevelRecord("f", 0),
            ProducerIdsRecord(1, -1, 5001),
            ABORT,
        ]
    )
    after = feeder.loader.image
    assert (after.topics_by_name, after.topics_by_id, after.configs, after.features, after.next_producer_id) == (
        before.topics_by_name,
        before.topics_by_id,
        before.configs,
        before.features,
        before.next_producer_id,
    )


def test_several_transactions_in_one_batch() -> None:
    """E.4: legal, each counts by itself."""
    feeder = Feeder().feed([BEGIN, *topic("a"), END, BEGIN, *topic("b"), ABORT, BEGIN, *topic("c"), END])
    assert feeder.seen == [{"a", "c"}]


@pytest.mark.parametrize(
    ("batches", "offset"),
    [
        ([[BEGIN, BEGIN]], 1),
        ([[BEGIN], [BEGIN]], 1),
        ([[END]], 0),
        ([[NoOpRecord(), ABORT]], 1),
        ([[BEGIN, END, END]], 2),
    ],
)
def test_transaction_records_out_of_place_are_corruption(batches: list[list[MetadataRecord]], offset: int) -> None:
    """E.4: Begin only outside, End and Abort only inside; the error names the offset."""
    with pytest.raises(MetadataCorrupt, match=f"offset {offset}:") as caught:
        Feeder().feed(*batches)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    "records",
    [
        [*topic("a"), *topic("a")],
        [*topic("a"), TopicRecord("b", topic("a")[0].topic_id)],  # type: ignore[union-attr]
        [TopicRecord("a", bytes(16))],
        [TopicRecord("a", b"1" * 16), PartitionRecord(1, b"1" * 16, (1,), (1,), leader=1)],
        [*topic("a"), PartitionRecord(0, topic("a")[0].topic_id, (1,), (1,), leader=1)],  # type: ignore[union-attr]
        [PartitionRecord(0, b"2" * 16, (1,), (1,), leader=1)],
        [RemoveTopicRecord(b"2" * 16)],
        [ConfigRecord(99, "a", "x", "1")],
        [ProducerIdsRecord(1, -1, 2001), ProducerIdsRecord(1, -1, 1001)],
    ],
    ids=["name twice", "id twice", "no partition", "a hole", "partition twice", "no topic", "nothing to remove",
         "resource type", "ids go back"],
)  # fmt: skip
def test_records_that_cannot_follow_are_corruption(records: list[MetadataRecord]) -> None:
    with pytest.raises(MetadataCorrupt):
        Feeder().feed(records)


def test_a_gap_in_the_offsets_is_corruption() -> None:
    loader = MetadataLoader()
    loader.load_batch(0, topic("a"))
    with pytest.raises(MetadataCorrupt, match="offset 2 was expected"):
        loader.load_batch(5, topic("b"))


def test_a_name_can_come_again_once_it_is_gone() -> None:
    """M5: the new topic has its own id and none of the old one's configurations."""
    again = [TopicRecord("a", b"new".ljust(16)), PartitionRecord(0, b"new".ljust(16), (1,), (1,), leader=1)]
    feeder = Feeder().feed([*topic("a", 3), ConfigRecord(2, "a", "x", "1")])
    feeder.feed([RemoveTopicRecord(topic("a")[0].topic_id), *again])  # type: ignore[union-attr]
    image = feeder.loader.image
    assert image.topics_by_name["a"].partitions == 1
    assert image.topics_by_name["a"].configs == {}
    assert set(image.topics_by_id) == {b"new".ljust(16)}


def test_observers_hear_what_changed() -> None:
    loader = MetadataLoader()
    a = topic("a")
    [created, *rest] = loader.load_batch(0, [*a, ConfigRecord(2, "a", "x", "1"), FeatureLevelRecord("f", 1)])
    assert isinstance(created, TopicCreated)
    assert created.topic.configs == {"x": "1"}
    assert rest == [FeaturesChanged({"f": 1})]
    more: list[MetadataRecord] = [
        PartitionRecord(1, created.topic.topic_id, (1,), (1,), leader=1),
        ConfigRecord(2, "a", "x", None),
        ConfigRecord(4, "1", "z", "9"),
    ]
    grown, reset, broker = loader.load_batch(4, more)
    assert isinstance(grown, PartitionsAdded)
    assert (grown.before, grown.topic.partitions) == (1, 2)
    assert isinstance(reset, TopicConfigChanged)
    assert reset.topic.configs == {}
    assert broker == BrokerConfigChanged("1")
    [gone] = loader.load_batch(7, [RemoveTopicRecord(created.topic.topic_id)])
    assert isinstance(gone, TopicDeleted)
    assert gone.topic.partitions == 2


def test_setting_what_is_set_already_calls_no_listener() -> None:
    loader = MetadataLoader()
    loader.load_batch(0, [*topic("a"), ConfigRecord(2, "a", "x", "1")])
    assert loader.load_batch(3, [ConfigRecord(2, "a", "x", "1"), NoOpRecord()]) == ()
