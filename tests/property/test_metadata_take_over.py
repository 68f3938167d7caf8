"""KIP-868 by hypothesis (row M2): random changes, crashes and take-overs at every record.

Every image that anybody is ever shown equals the fold of the committed transactions up to it, and nothing else: the
fold is made here by plain dictionaries from the log's records, whose own idea of what committed is five lines long.
"""

from dataclasses import dataclass, field

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.config.broker_config import load_config
from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits, MorePartitions, NewTopic, TopicRef
from fencepost.coordinator.metadata.delta import MetadataDelta
from fencepost.coordinator.metadata.edits import ClusterEdit, CreateAcl, DeleteAcl
from fencepost.coordinator.metadata.image import Acl, MetadataImage
from fencepost.coordinator.metadata.ports import Bounds
from fencepost.coordinator.metadata.service import MetadataService
from fencepost.coordinator.metadata.snapshot import read_snapshot, snapshot_parts
from fencepost.coordinator.metadata.transactions import MetadataLoader
from fencepost.coordinator.ports import LogWriteFailed
from fencepost.protocol.metadata_record_types import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from fencepost.protocol.metadata_records import decode_metadata_record, decode_metadata_records
from tests.kit.examples import examples
from tests.unit.metadata.kit import Ids, MetadataLog, PowerCut, build

CONFIG = load_config(assignments=["offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1"])
NAMES = ("a", "b", "c.d", "c_d")
ACLS = [Acl(2, name, 3, "User:u", "*", 3, 3) for name in NAMES[:2]]


@dataclass
class Plain:
    """What committed records come to, told by dictionaries."""

    topics: dict[bytes, tuple[str, int]] = field(default_factory=dict)
    configs: dict[tuple[str, str], str] = field(default_factory=dict)
    acls: dict[bytes, str] = field(default_factory=dict)
    next_producer_id: int = 1

    def take(self, record: MetadataRecord) -> None:
        match record:
            case TopicRecord():
                self.topics[record.topic_id] = record.name, 0
            case PartitionRecord():
                name, count = self.topics[record.topic_id]
                self.topics[record.topic_id] = name, count + 1
            case RemoveTopicRecord():
                name, _ = self.topics.pop(record.topic_id)
                self.configs = {key: value for key, value in self.configs.items() if key[0] != name}
            case ConfigRecord(value=str() as value):
                self.configs[record.resource_name, record.name] = value
            case ConfigRecord():
                self.configs.pop((record.resource_name, record.name), None)
            case AccessControlEntryRecord():
                self.acls[record.id] = record.resource_name
            case RemoveAccessControlEntryRecord():
                del self.acls[record.id]
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id


def committed(records: list[MetadataRecord]) -> list[MetadataRecord]:
    """The records that count."""
    found: list[MetadataRecord] = []
    inside: list[MetadataRecord] | None = None
    for record in records:
        if isinstance(record, BeginTransactionRecord):
            inside = []
        elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
            found += (inside or []) if isinstance(record, EndTransactionRecord) else []
            inside = None
        else:
            (found if inside is None else inside).append(record)
    return found


def fold(records: list[MetadataRecord]) -> Plain:
    plain = Plain()
    for record in committed(records):
        plain.take(record)
    return plain


def seen(image: MetadataImage) -> Plain:
    return Plain(
        {topic_id: (topic.name, topic.partitions) for topic_id, topic in image.topics_by_id.items()},
        {(resource.name, key): text for resource, entries in image.configs.items() for key, text in entries.items()},
        {acl_id: acl.resource_name for acl_id, acl in image.acls.items()},
        image.next_producer_id,
    )


EDITS: st.SearchStrategy[ClusterEdit] = st.one_of(
    st.builds(NewTopic, st.sampled_from(NAMES), st.integers(1, 7)),
    st.builds(TopicRef, st.sampled_from(NAMES)),
    st.builds(MorePartitions, st.sampled_from(NAMES), st.integers(1, 12)),
    st.builds(
        lambda name, value: ConfigEdits(2, name, (ConfigEdit("retention.ms", 0, str(value)),)),
        st.sampled_from(NAMES),
        st.integers(1, 9),
    ),
    st.builds(CreateAcl, st.sampled_from(ACLS)),
    st.builds(DeleteAcl, st.sampled_from(ACLS)),
)
STEPS = st.one_of(
    st.tuples(st.just("apply"), st.lists(EDITS, min_size=1, max_size=5)),
    st.tuples(st.just("apply"), st.lists(EDITS, min_size=1, max_size=1)),
    st.tuples(st.just("ids"), st.none()),
    st.tuples(st.just("take over"), st.none()),
    st.tuples(st.just("crash"), st.integers(1, 6)),
    st.tuples(st.just("refuse"), st.integers(1, 6)),
)


@dataclass
class World:
    """A log, controllers over it that come and go, and all that was ever shown."""

    bounds: Bounds
    log: MetadataLog = field(default_factory=MetadataLog)
    ids: Ids = field(default_factory=Ids)
    logs: dict[int, MetadataLog] = field(default_factory=dict)
    """By the identity of the controller that sees the log through it."""

    async def controller(self, standby: bool) -> MetadataService:
        """A new one, which has read the log and taken it over unless it is a standby."""
        cluster = build(self.log.rival(), CONFIG, self.ids, self.bounds)
        cluster.log.batches = self.log.batches
        cluster.service.observer = lambda changes: self.check(cluster.service.image)
        await cluster.service.start(standby=standby)
        self.logs[id(cluster.service)] = cluster.log
        self.check(cluster.service.image)
        return cluster.service

    def check(self, image: MetadataImage) -> None:
        """What is shown is the fold of what is committed below it."""
        records = self.log.records()[: image.offset]
        assert seen(image) == fold(records)
        assert len(records) == image.offset


async def play(steps: list[tuple[str, object]], bounds: Bounds) -> World:
    world = World(bounds)
    active = await world.controller(standby=False)
    old: list[MetadataService] = []
    for kind, what in steps:
        log = world.logs[id(active)]
        log.appends, log.dies_at, log.refuses = 0, None, None
        try:
            if kind == "apply":
                await active.apply(what)  # type: ignore[arg-type]
            elif kind == "ids":
                await active.next_producer_id()
            elif kind == "take over":
                old.append(active)
                active = await world.controller(standby=True)
                await active.take_over()
                for former in old[-2:]:  # hears of it at its next append
                    before = sum(map(len, world.log.batches))
                    applied = await former.apply([NewTopic("never", 5)])
                    assert applied.refused
                    assert sum(map(len, world.log.batches)) == before
                    await former.follow()
                    world.check(former.image)
            else:
                log.dies_at, log.refuses = (what, None) if kind == "crash" else (None, what)  # type: ignore[assignment]
                await active.apply([NewTopic("a", 9), TopicRef("a"), NewTopic("b", 9), CreateAcl(ACLS[0])])
                await active.apply([NewTopic("x", 12)])
        except PowerCut:
            active = await world.controller(standby=False)
        except LogWriteFailed:
            pass  # producer ids that a refusing log did not give
        world.check(active.image)
        assert active.image.offset <= sum(map(len, world.log.batches))
    return world


@given(st.lists(STEPS, min_size=1, max_size=9), st.integers(2, 6))
@settings(max_examples=examples(60), deadline=None)
def test_m2_every_published_image_is_the_fold_of_committed_transactions(steps, append_records_max: int) -> None:
    """Whatever happens between two records, nobody is ever shown anything else."""
    world = trio.run(play, steps, Bounds(append_records_max=append_records_max))
    batches = world.log.batches
    shown: list[MetadataDelta] = []
    loader = MetadataLoader(publish=shown.append)
    offset = 0
    for values in batches:  # a reader that looks at every batch
        loader.load_batch(offset, [*decode_metadata_records(values)])
        offset += len(values)
        world.check(loader.image)
    for delta in shown:
        world.check(delta.image)
    again = MetadataLoader()  # and one that gets all at once
    again.load_batch(0, [decode_metadata_record(value) for values in batches for value in values])
    assert again.image == loader.image
    stored = b"".join(snapshot_parts(loader.image, 1))
    assert read_snapshot(stored, loader.image.offset, "here").image == loader.image
