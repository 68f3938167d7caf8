"""The metadata log and its snapshots as files (rows M1, M2, M6, M8): a broker lives on them, a reader stands beside."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.log.verify.report import Report
from fencepost.broker.metadata import snapshots as metadata_snapshots
from fencepost.broker.metadata.reader import METADATA_DIRECTORY, MetadataReader, NoMetadataLog
from fencepost.broker.node import Node
from fencepost.broker.verification import verify
from fencepost.coordinator.metadata.commands import FeatureUpdate, MorePartitions, NewTopic, TopicRef
from fencepost.coordinator.metadata.history import Verdict
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.metadata.image_fold import ImageFold
from fencepost.coordinator.metadata.ports import Bounds
from fencepost.coordinator.metadata.snapshot import read_snapshot
from fencepost.coordinator.ports import LogWriteFailed
from fencepost.protocol.admin_enums import UpgradeType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_entries import PartitionRun, record_count
from fencepost.protocol.metadata_record_types import (
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from fencepost.protocol.topics import TopicPartition
from tests.unit.metadata.kit import user_topics

INTERNAL = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")


def node_on(path: Path, *settings: str) -> Node:
    given = [f"log.dirs={path}", "listeners=PLAINTEXT://127.0.0.1:0", *INTERNAL, *settings]
    return Node(load_config(assignments=given), listening=False)


class Life:
    """A broker that runs while the block does, and is asked to end at its end."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._nursery_manager = trio.open_nursery()

    async def __aenter__(self) -> Node:
        nursery = await self._nursery_manager.__aenter__()
        await nursery.start(self.node.run)
        return self.node

    async def __aexit__(self, *error: object) -> None:
        self.node.stop()
        await self._nursery_manager.__aexit__(*error)  # type: ignore[arg-type]


def log_files(path: Path, suffix: str) -> list[Path]:
    return sorted((path / METADATA_DIRECTORY).glob(f"*{suffix}"))


def log_copies(path: Path) -> list[Path]:
    return [*path.glob(f"{METADATA_DIRECTORY}.damaged*")]


async def snapshot_lives(path: Path, count: int, *settings: str) -> MetadataImage:
    """A broker that takes `count` snapshots, with changes between and behind them."""
    async with Life(node_on(path, *settings)) as node:
        for number in range(count):
            await node.metadata.create_topics([NewTopic(f"t-{number}", 3, configs={"retention.ms": "7"})])
            assert await node.metadata.take_snapshot()
        await node.metadata.create_topics([NewTopic("behind", 2)])
        return node.metadata.image


def but_for_this_life(image: MetadataImage, before: MetadataImage) -> MetadataImage:
    """The image without what each start of a broker adds to it: its registration."""
    return replace(image, offset=before.offset, brokers=before.brokers)


async def test_m8_each_life_of_a_broker_is_registered(tmp_path: Path) -> None:
    """As Kafka's: the record's offset is the life's epoch, and a next life takes the place of the one before."""
    lives = []
    for number in range(3):
        async with Life(node_on(tmp_path, "broker.rack=r", "advertised.listeners=PLAINTEXT://here:7")) as node:
            [registered] = node.metadata.image.brokers.values()
            lives.append(registered)
            assert node.metadata.image.offset == registered.broker_epoch + 1
            for level in (16,) * (number == 1):  # also where records of directories are not known
                update = FeatureUpdate("metadata.version", level, UpgradeType.UNSAFE_DOWNGRADE)
                assert (await node.metadata.update_features([update])).code == 0
            assert number != 1 or await node.metadata.take_snapshot()
    assert (registered.broker_id, registered.rack, registered.fenced) == (1, "r", False)
    assert registered.end_points == (BrokerEndpoint("PLAINTEXT", "here", 7, 0),)
    assert BrokerFeature("metadata.version", 7, 25) in registered.features
    assert len({life.incarnation_id for life in lives}) == 3
    told = [
        (logged.offset, logged.entry)
        for moment in MetadataReader(tmp_path).moments()
        for logged in moment.entries
        if isinstance(logged.entry, RegisterBrokerRecord)
    ]
    assert told == [(life.broker_epoch, life) for life in lives]
    assert MetadataReader(tmp_path).image().brokers == {1: lives[-1]}


async def test_m8_a_broker_that_can_not_be_registered_serves_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Life(node_on(tmp_path)) as node:
        await node.metadata.create_topics([NewTopic("a")])
    node = node_on(tmp_path)
    full = LogWriteFailed(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    async def refuse(registration: object) -> int:
        raise full

    monkeypatch.setattr(node.metadata, "register_broker", refuse)
    async with Life(node):
        assert user_topics(node.metadata) == {"a": 1}
    assert "cannot be registered in the metadata" in caplog.text


async def test_m1_a_start_loads_the_newest_snapshot_and_what_follows(tmp_path: Path) -> None:
    """metadata.max.retention.bytes: of log and snapshots only what a start needs is left."""
    before = await snapshot_lives(tmp_path, 4, "metadata.max.retention.bytes=1")
    assert len(log_files(tmp_path, ".checkpoint")) == 2, "the newest, and one in case that is damaged"
    first = int(log_files(tmp_path, ".log")[0].stem)
    assert 0 < first <= int(log_files(tmp_path, ".checkpoint")[0].name[:20])
    async with Life(node_on(tmp_path)) as node:
        assert but_for_this_life(node.metadata.image, before) == before
        assert node.metadata_log.log_start_offset == first
        await node.metadata.create_topics([NewTopic("later")])
    async with Life(node_on(tmp_path)) as node:
        assert set(user_topics(node.metadata)) == {"t-0", "t-1", "t-2", "t-3", "behind", "later"}


async def test_m1_where_all_of_the_log_is_kept_a_snapshot_begins_no_new_file(tmp_path: Path) -> None:
    """metadata.max.retention.bytes=-1: segments, each of a handful of files, would only become more and more."""
    await snapshot_lives(tmp_path, 4, "metadata.max.retention.bytes=-1")
    assert [path.name for path in log_files(tmp_path, ".log")] == [f"{0:020d}.log"]
    assert len(log_files(tmp_path, ".checkpoint")) == 2


async def test_m1_a_damaged_snapshot_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    before = await snapshot_lives(tmp_path, 3, "metadata.max.retention.bytes=1")
    newest = log_files(tmp_path, ".checkpoint")[-1]
    newest.write_bytes(newest.read_bytes()[:-30])
    report = Report()
    verify(tmp_path, report)
    assert any(newest.name in str(finding) for finding in report.findings)
    async with Life(node_on(tmp_path)) as node:
        assert but_for_this_life(node.metadata.image, before) == before


async def test_m1_a_log_that_is_damaged_before_a_snapshot_goes_on_behind_it(tmp_path: Path) -> None:
    """What the snapshot knows is not lost with the log; a copy of the whole log is kept."""
    before = await snapshot_lives(tmp_path, 2)
    [log] = [path for path in log_files(tmp_path, ".log") if path.stat().st_size]
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    async with Life(node_on(tmp_path)) as node:
        known = user_topics(node.metadata)
        assert known == {"t-0": 3, "t-1": 3}, "all but what came behind the snapshot"
        assert node.metadata.image.offset >= 0
        await node.metadata.create_topics([NewTopic("later")])
    assert set(user_topics_of(before)) == {*known, "behind"}
    assert log_copies(tmp_path)
    async with Life(node_on(tmp_path)) as node:
        assert user_topics(node.metadata) == {**known, "later": 1}


def user_topics_of(image: MetadataImage) -> set[str]:
    return {name for name, topic in image.topics_by_name.items() if not topic.internal}


async def test_m1_verify_knows_snapshots(tmp_path: Path) -> None:
    await snapshot_lives(tmp_path, 2)
    report = Report()
    verify(tmp_path, report)
    assert [finding for finding in report.findings if METADATA_DIRECTORY in str(finding)] == []


async def test_m1_snapshots_come_by_bytes(tmp_path: Path) -> None:
    """metadata.log.max.record.bytes.between.snapshots."""
    setting = "metadata.log.max.record.bytes.between.snapshots=2000"
    async with Life(node_on(tmp_path, setting)) as node:
        due = node._snapshots.take_if_due
        await due(node.metadata)
        assert log_files(tmp_path, ".checkpoint") == []
        await node.metadata.create_topics([NewTopic("wide", 100)])
        await due(node.metadata)
        assert len(log_files(tmp_path, ".checkpoint")) == 1
        await due(node.metadata)
        assert len(log_files(tmp_path, ".checkpoint")) == 1, "nothing has come since"


async def test_m1_none_is_taken_within_a_transaction(tmp_path: Path) -> None:
    async with Life(node_on(tmp_path)) as node:
        node.metadata.journal.bounds = Bounds(append_records_max=3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.metadata.create_topics, [NewTopic("wide", 50)])
            taken = []
            while "wide" not in node.metadata.image.topics_by_name:
                if node.metadata.journal.open is not None:
                    taken.append(await node.metadata.take_snapshot())
                await trio.lowlevel.checkpoint()
        assert taken
        assert not any(taken)
        assert await node.metadata.take_snapshot()


async def test_m2_a_downgrade_below_level_13_takes_a_snapshot_before_it_is_answered(tmp_path: Path) -> None:
    """S0 "Compatibility": it has no transaction records in it, and software of that level begins with it."""
    async with Life(node_on(tmp_path)) as node:
        await node.metadata.create_topics([NewTopic("a", 3)])
        safe = await node.metadata.update_features([FeatureUpdate("metadata.version", 12, UpgradeType.SAFE_DOWNGRADE)])
        assert "might delete metadata" in (safe.message or "")
        assert log_files(tmp_path, ".checkpoint") == []
        await node.metadata.update_features([FeatureUpdate("metadata.version", 12, UpgradeType.UNSAFE_DOWNGRADE)])
        [snapshot] = log_files(tmp_path, ".checkpoint")
        image = read_snapshot(snapshot.read_bytes(), int(snapshot.name[:20]), "here").image
        assert image.features["metadata.version"] == 12
        assert image.topics_by_name["a"].partitions == 3
        assert image.topics_by_name["a"].assignment[0].directories == ()
        await node.metadata.create_topics([NewTopic("b", 2)])
    async with Life(node_on(tmp_path)) as node:
        assert user_topics(node.metadata) == {"a": 3, "b": 2}


async def test_m1_a_deleted_topic_of_which_a_log_is_left_is_remembered_beside_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot forgets that there ever was such a topic; the logs that the disk refused to delete must go one day."""
    async with Life(node_on(tmp_path)) as node:
        await node.metadata.create_topics([NewTopic("gone")])
        assert node.partition(TopicPartition("gone", 0)) is not None
        topic_id = node.metadata.image.topics_by_name["gone"].topic_id
        monkeypatch.setattr(node.deleted_topics, "_delete_log", lambda tp: None)
        monkeypatch.setattr(node.logs, "topic_id_on_disk", lambda tp: topic_id)
        await node.metadata.delete_topics([TopicRef("gone")])
        assert await node.metadata.take_snapshot()
    async with Life(node_on(tmp_path)) as node:
        assert topic_id in node.metadata.deleted_topic_ids


async def test_m1_ids_of_deleted_topics_do_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are for logs of such topics that are still there; one that comes and goes every minute leaves nothing."""
    monkeypatch.setattr(metadata_snapshots, "IDS_AT_ONCE", 5)
    async with Life(node_on(tmp_path)) as node:
        metadata, snapshots, kept = node.metadata, node._snapshots, b""
        for number in range(30):
            await metadata.create_topics([NewTopic(f"t{number}")])
            if number == 7:
                kept = metadata.image.topics_by_name["t7"].topic_id
                assert node.partition(TopicPartition("t7", 0)) is not None
                monkeypatch.setattr(node.logs, "topic_id_on_disk", lambda tp, kept=kept: kept)
                with monkeypatch.context() as patch:
                    patch.setattr(node.deleted_topics, "_delete_log", lambda tp: None)
                    await metadata.delete_topics([TopicRef("t7")])
            else:
                await metadata.delete_topics([TopicRef(f"t{number}")])
            await snapshots.take_if_due(metadata)
            assert len(metadata.deleted_topic_ids) <= 12
            assert len(metadata.journal._loader.deleted_topic_ids) <= 1
        assert kept in metadata.deleted_topic_ids
        assert node.logs.deleted_topic_ids is metadata.deleted_topic_ids


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Nothing in the directory is written meanwhile."""
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    yield
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


async def test_m6_a_reader_sees_the_committed_image_as_of_any_offset_of_a_live_log(tmp_path: Path) -> None:
    """Partial and aborted transactions never show; a follower hears of each step once."""
    async with Life(node_on(tmp_path)) as node:
        node.metadata.journal.bounds = Bounds(append_records_max=4)
        follower = MetadataReader(tmp_path).follow()
        follower.poll()
        images = [node.metadata.image]
        for edits in ([NewTopic("a", 9)], [MorePartitions("a", 12)], [NewTopic("b", 1), TopicRef("a")]):
            assert not (await node.metadata.apply(edits, name="step")).refused
            images.append(node.metadata.image)
            with unchanged(tmp_path):
                [moment] = follower.poll()
                assert (moment.verdict, moment.name, moment.in_transaction) == (Verdict.COMMITTED, "step", True)
                assert moment.delta is not None
                assert moment.delta.image == follower.image == node.metadata.image
                assert MetadataReader(tmp_path).image() == node.metadata.image
        assert await node.metadata.take_snapshot()
        reader = MetadataReader(tmp_path)
        with unchanged(tmp_path):
            for offset in range(images[0].offset, images[-1].offset + 1):
                newest = max((image for image in images if image.offset <= offset), key=lambda image: image.offset)
                assert reader.image(offset) == newest
            moments = [*reader.moments(images[0].offset)]
            assert [moment.name for moment in moments] == ["step"] * 3
            entries = [entry for _, entry in moments[0].entries]
            assert isinstance(entries[0], BeginTransactionRecord)
            assert record_count(entries) == 1 + 1 + 9 + 1
            assert any(isinstance(entry, TopicRecord) for entry in entries)


async def test_m6_an_open_transaction_and_a_torn_end_are_told_apart_from_what_counts(tmp_path: Path) -> None:
    async with Life(node_on(tmp_path)) as node:
        node.metadata.journal.bounds = Bounds(append_records_max=4)
        await node.metadata.create_topics([NewTopic("a", 9)])
        before = node.metadata.image
        partitions = PartitionRun(PartitionRecord(0, b"l" * 16, (1,), (1,), leader=1), 9)
        node.metadata.journal.write_at_once([TopicRecord("later", b"l" * 16), partitions])
        end = node.metadata_log.log_end_offset
    [log] = log_files(tmp_path, ".log")
    whole = log.read_bytes()
    reader = MetadataReader(tmp_path)
    last = [*reader.moments()][-1]
    assert (last.verdict, last.next_offset) == (Verdict.COMMITTED, end)
    log.write_bytes(whole[:-20])
    [*_, opened] = reader.moments()
    assert opened.verdict is Verdict.OPEN
    assert opened.first_offset == before.offset
    assert reader.image().topics_by_name == before.topics_by_name
    follower, newest = reader.follow(), reader.follow_image()
    follower.poll()
    assert log.name in (follower.tail or "")
    assert log.name in (newest.tail or "")
    log.write_bytes(whole)
    assert newest.poll()
    assert "later" in newest.image.topics_by_name
    [moment] = follower.poll()
    assert moment.verdict is Verdict.COMMITTED
    assert follower.tail is None


async def test_m6_an_image_is_followed_over_everything_that_comes(tmp_path: Path) -> None:
    """Whoever looks, however seldom, sees the committed image; a log that was cut meanwhile is told of."""
    settings = ("metadata.max.retention.bytes=1",)
    async with Life(node_on(tmp_path, *settings)) as node:
        node.metadata.journal.bounds = Bounds(append_records_max=4)
        reader = MetadataReader(tmp_path)
        follower, late = reader.follow_image(), reader.follow_image()
        assert follower.image == node.metadata.image
        assert not follower.poll()
        for edits in ([NewTopic("a", 9)], [MorePartitions("a", 12), NewTopic("b")], [TopicRef("a")]):
            await node.metadata.apply(edits, name="step")
            assert follower.poll()
            assert follower.image == node.metadata.image
        for number in range(3):
            await node.metadata.create_topics([NewTopic(f"t-{number}")])
            assert await node.metadata.take_snapshot()
        with pytest.raises(NoMetadataLog, match="goes back to offset"):
            late.poll()
        assert reader.follow_image().image == node.metadata.image


async def test_m6_a_long_log_is_folded_once_and_its_history_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image for each batch of a long log took gigabytes."""
    async with Life(node_on(tmp_path)) as node:
        for number in range(60):
            await node.metadata.create_topics([NewTopic(f"t-{number}")])
        expected = node.metadata.image
    folds = []
    apply = ImageFold.apply
    monkeypatch.setattr(ImageFold, "apply", lambda fold, offset: folds.append(offset) or apply(fold, offset))
    assert MetadataReader(tmp_path).image() == expected
    assert len(folds) < 10
    gc.collect()
    before = sum(isinstance(one, MetadataImage) for one in gc.get_objects())
    seen = 0
    for moment in MetadataReader(tmp_path).moments():
        seen += moment.delta is not None
        if seen == 60:
            assert sum(isinstance(one, MetadataImage) for one in gc.get_objects()) - before < 10
    assert seen > 60


def test_m6_where_there_is_no_metadata_log(tmp_path: Path) -> None:
    with pytest.raises(NoMetadataLog):
        MetadataReader(tmp_path / "nowhere")
    with pytest.raises(NoMetadataLog):
        MetadataReader(tmp_path)
