"""KIP-868 by hypothesis: a crash at every record boundary, any cutting into batches; what shows is always whole."""

from dataclasses import dataclass, field
from itertools import pairwise

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits, MorePartitions, NewTopic, TopicRef
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.metadata.ports import Bounds
from fencepost.coordinator.metadata.transactions import MetadataLoader
from fencepost.protocol.metadata_record_types import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from fencepost.protocol.metadata_records import decode_metadata_record, encode_metadata_record
from tests.kit.examples import examples
from tests.unit.metadata.kit import Cluster, MetadataLog, PowerCut, started

SMALL = Bounds(append_records_max=3)
NAMES = ("a", "b", "c", "d")


@dataclass
class Model:
    """What a metadata log means, told without deltas, images or batches: plain dictionaries."""

    topics: dict[str, int] = field(default_factory=dict)
    configs: dict[tuple[str, str], str] = field(default_factory=dict)
    next_producer_id: int = 1

    def copy(self) -> "Model":
        return Model(dict(self.topics), dict(self.configs), self.next_producer_id)


def seen(image: MetadataImage) -> Model:
    """The same of an image, clients' topics only."""
    topics = {name: topic.partitions for name, topic in image.topics_by_name.items() if not topic.internal}
    assert set(image.topics_by_id) == {topic.topic_id for topic in image.topics_by_name.values()}
    configs = {(name, key): value for name in topics for key, value in image.topics_by_name[name].configs.items()}
    assert all(image.topic_config(name) == image.topics_by_name[name].configs for name in topics)
    return Model(topics, configs, image.next_producer_id)


class Writer:
    """Turns drawn steps into records and keeps the model beside them."""

    def __init__(self) -> None:
        self.model = Model()
        self.ids: dict[str, bytes] = {}
        self.counter = 0

    def records(self, model: Model, step: tuple[str, str, int], ids: dict[str, bytes]) -> list[MetadataRecord]:
        kind, name, number = step
        if kind == "ids":
            model.next_producer_id += number
            return [ProducerIdsRecord(1, -1, model.next_producer_id)]
        if name not in model.topics:
            self.counter += 1
            ids[name] = self.counter.to_bytes(16, "big")
            model.topics[name] = number
            return [TopicRecord(name, ids[name]), *self._partitions(ids[name], 0, number)]
        if kind == "delete":
            del model.topics[name]
            model.configs = {key: value for key, value in model.configs.items() if key[0] != name}
            return [RemoveTopicRecord(ids.pop(name))]
        if kind == "grow":
            before = model.topics[name]
            model.topics[name] = before + number
            return self._partitions(ids[name], before, before + number)
        model.configs[name, "x"] = str(number)
        return [ConfigRecord(2, name, "x", str(number))]

    @staticmethod
    def _partitions(topic_id: bytes, start: int, stop: int) -> list[MetadataRecord]:
        return [PartitionRecord(number, topic_id, (1,), (1,), leader=1) for number in range(start, stop)]


STEPS = st.tuples(st.sampled_from(["make", "delete", "grow", "set", "ids"]), st.sampled_from(NAMES), st.integers(1, 3))
TRANSACTIONS = st.tuples(st.sampled_from(["commit", "abort", "plain"]), st.lists(STEPS, min_size=1, max_size=4))


@dataclass
class History:
    """A log, and what a reader may see once it has taken in the first n records."""

    records: list[MetadataRecord] = field(default_factory=list)
    visible: dict[int, Model] = field(default_factory=dict)
    atomic: list[tuple[int, int]] = field(default_factory=list)
    """Ranges that no batch boundary may cut: changes outside a transaction."""


def history(drawn: list[tuple[str, list[tuple[str, str, int]]]]) -> History:
    """Write every change as a transaction that ends or aborts, or as one atomic batch."""
    writer, found = Writer(), History()
    found.visible[0] = writer.model.copy()
    for verdict, steps in drawn:
        model, ids, start = writer.model.copy(), dict(writer.ids), len(found.records)
        body = [record for step in steps for record in writer.records(model, step, ids)]
        if verdict == "plain":
            found.records += body
            found.atomic.append((start, len(found.records)))
        else:
            end = EndTransactionRecord() if verdict == "commit" else AbortTransactionRecord("drawn")
            found.records += [BeginTransactionRecord("drawn"), *body, end]
        for position in range(start + 1, len(found.records)):
            found.visible[position] = writer.model.copy()
        if verdict != "abort":
            writer.model, writer.ids = model, ids
        found.visible[len(found.records)] = writer.model.copy()
    return found


def cuts(found: History, wanted: set[int]) -> list[int]:
    """Batch boundaries at the wanted places, but for those inside an atomic change."""
    inside = {position for start, stop in found.atomic for position in range(start + 1, stop)}
    return sorted((wanted | {0, len(found.records)}) - inside)


@given(st.lists(TRANSACTIONS, max_size=6), st.sets(st.integers(0, 80)))
@settings(max_examples=examples(200), deadline=None)
def test_every_reader_at_every_batch_boundary_sees_whole_transactions_only(drawn, wanted) -> None:
    """S0 "Record Visibility", E.3 (LSO), E.5: however the log is cut into batches, an aborted record never shows."""
    found = history(drawn)
    places = cuts(found, {place for place in wanted if place <= len(found.records)})
    loader = MetadataLoader()
    for start, stop in pairwise(places):
        batch = [decode_metadata_record(encode_metadata_record(record)) for record in found.records[start:stop]]
        loader.load_batch(start, batch)
        assert seen(loader.image) == found.visible[stop]
        assert loader.image.offset <= loader.last_stable_offset <= loader.next_offset == stop


@given(st.lists(TRANSACTIONS, min_size=1, max_size=5), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_failover_at_any_record_takes_back_what_is_open_and_nothing_else(drawn, data) -> None:
    """S0 "Controller Failover": the new controller writes an Abort; the state is the one before the Begin."""
    found = history(drawn)
    places = cuts(found, set(range(len(found.records) + 1)))
    crash = data.draw(st.sampled_from(places))
    loader = MetadataLoader()
    for start, stop in pairwise(places):
        if stop <= crash:
            loader.load_batch(start, found.records[start:stop])
    later = [TopicRecord("later", b"l" * 16), PartitionRecord(0, b"l" * 16, (1,), (1,), leader=1)]
    if loader.open is None:
        loader.load_batch(crash, list(later))
    else:
        loader.load_batch(crash, [AbortTransactionRecord("Controller failover"), *later])
    expected = found.visible[crash].copy()
    expected.topics["later"] = 1
    assert seen(loader.image) == expected


@given(st.lists(TRANSACTIONS, max_size=6))
@settings(max_examples=examples(100), deadline=None)
def test_the_image_is_the_fold_of_the_log(drawn) -> None:
    """Architecture: the state is the fold of apply over the log, taken record by record or all at once."""
    found = history(drawn)
    one, places = MetadataLoader(), cuts(found, set(range(len(found.records) + 1)))
    for start, stop in pairwise(places):
        one.load_batch(start, found.records[start:stop])
    other = MetadataLoader()
    if found.records:
        other.load_batch(0, found.records)
    assert one.image == other.image


@given(st.lists(TRANSACTIONS, max_size=6), st.sets(st.integers(0, 80)), st.sets(st.integers(0, 80)))
@settings(max_examples=examples(200), deadline=None)
def test_who_looks_now_and_then_sees_what_who_looks_always_sees(drawn, wanted, looks) -> None:
    """Rows M2 and M6: images that are made only when somebody looks are the same ones, within transactions, too."""
    found = history(drawn)
    one, other = MetadataLoader(), MetadataLoader()
    other.holding = True
    for start, stop in pairwise(cuts(found, {place for place in wanted if place <= len(found.records)})):
        one.load_batch(start, found.records[start:stop])
        other.load_batch(start, found.records[start:stop])
        if stop in looks or stop == len(found.records):
            assert other.release() == one.image
            assert (other.open, other.deleted_topic_ids) == (one.open, one.deleted_topic_ids)
            other.holding = True


ACTIONS = st.one_of(
    st.tuples(
        st.just("create"), st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 9)), min_size=1, max_size=3)
    ),
    st.tuples(st.just("delete"), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)),
    st.tuples(st.just("grow"), st.tuples(st.sampled_from(NAMES), st.integers(1, 14))),
    st.tuples(st.just("set"), st.tuples(st.sampled_from(NAMES), st.integers(1, 99))),
    st.tuples(st.just("ids"), st.none()),
)


async def act(cluster: Cluster, kind: str, what) -> None:
    service = cluster.service
    if kind == "create":
        await service.create_topics([NewTopic(name, count, configs={"retention.ms": "5"}) for name, count in what])
    elif kind == "delete":
        await service.delete_topics([TopicRef(name) for name in what])
    elif kind == "grow":
        await service.create_partitions([MorePartitions(*what)])
    elif kind == "set":
        await service.alter_configs([ConfigEdits(2, what[0], (ConfigEdit("retention.ms", 0, str(what[1])),))])
    else:
        await service.next_producer_id()


@given(st.lists(ACTIONS, min_size=1, max_size=6), st.integers(1, 12))
@settings(max_examples=examples(100), deadline=None)
def test_a_controller_that_dies_at_any_append_leaves_the_state_before_or_after_the_change(drawn, dies_at) -> None:
    """E.6: failover at every append, with batches of three records so that most changes span several."""

    async def run() -> None:
        cluster = await started(MetadataLog(), bounds=SMALL)
        cluster.log.appends, cluster.log.dies_at = 0, dies_at
        before = seen(cluster.service.image)
        try:
            for kind, what in drawn:
                before = seen(cluster.service.image)
                await act(cluster, kind, what)
            before = seen(cluster.service.image)
        except PowerCut:
            pass
        again = await started(cluster.log.survivor(), bounds=SMALL)
        assert seen(again.service.image) == before
        for kind, what in drawn:
            await act(again, kind, what)
        third = await started(again.log.survivor(), bounds=SMALL)
        assert third.service.image == again.service.image

    trio.run(run)
