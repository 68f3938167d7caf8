"""Several controllers and one log (row M2, E.3): who is fenced, what is aborted, who waits, and what bounds a change.

The log is a real one: the LogStore over memory, whose conditional append is the fence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.config.topic_rules import TopicRules, cluster_facts, metadata_log_config
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.metadata.log import METADATA_PARTITION, METADATA_TOPIC_ID, MetadataPartitionLog
from fencepost.coordinator.metadata.commands import FeatureUpdate, MorePartitions, NewTopic, TopicRef
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.metadata.ports import Bounds
from fencepost.coordinator.metadata.service import MetadataService
from fencepost.coordinator.ports import LogWriteFailed
from fencepost.protocol.admin_enums import UpgradeType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_record_types import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from tests.kit.clocks import StillClock, VirtualClock
from tests.kit.memory_log import MemoryTicket
from tests.unit.metadata.kit import CLUSTER_ID, Ids, MetadataLog, build, started, user_topics

SMALL = Bounds(append_records_max=3)


class Shared:
    """One log in a `SegmentStore` over memory, and any number of controllers over it."""

    def __init__(self) -> None:
        self.config = load_config()
        logs = LogManager.over(MemoryStore(), "os", lambda topic: metadata_log_config(self.config))
        self.log = logs.create(METADATA_PARTITION, METADATA_TOPIC_ID, metadata_log_config(self.config))
        self.commit = LogFlusher("os")
        self.ids = Ids()

    def controller(self) -> MetadataService:
        return MetadataService(
            MetadataPartitionLog(self.log, self.commit),
            StillClock(),
            cluster_facts(self.config, CLUSTER_ID),
            TopicRules(self.config),
            self.ids,
            bounds=SMALL,
        )

    async def reader(self) -> MetadataImage:
        """What somebody sees who reads the whole log."""
        standby = self.controller()
        await standby.start(standby=True)
        return standby.image


async def test_m2_an_old_controllers_append_conflicts_and_it_steps_down() -> None:
    """The seam is LogStore (decision 0015): the position of a log is its version."""
    shared = Shared()
    old, new = shared.controller(), shared.controller()
    await old.start()
    await old.create_topics([NewTopic("a")])
    await new.start(standby=True)
    assert user_topics(new) == {"a": 1}
    await new.take_over()
    [reply] = await new.create_topics([NewTopic("b")])
    assert reply.outcome.code is ErrorCode.NONE

    end = shared.log.log_end_offset
    [reply] = await old.create_topics([NewTopic("c", 9)])
    assert reply.outcome.code is ErrorCode.NOT_CONTROLLER
    assert shared.log.log_end_offset == end, "nothing was appended"
    assert not old.journal.active
    assert new.journal.active
    [reply] = await old.create_topics([NewTopic("d")])
    assert reply.outcome.code is ErrorCode.NOT_CONTROLLER, "it does not try again"
    with pytest.raises(LogWriteFailed):
        await old.next_producer_id()

    await old.follow()
    assert old.image == new.image == await shared.reader()


async def test_m2_a_take_over_with_nothing_open_fences_all_the_same() -> None:
    shared = Shared()
    old, new = shared.controller(), shared.controller()
    await old.start()
    await new.start(standby=True)
    await new.take_over()
    [reply] = await old.create_topics([NewTopic("a")])
    assert reply.outcome.code is ErrorCode.NOT_CONTROLLER
    await old.follow()
    await old.take_over()
    [reply] = await new.create_topics([NewTopic("b")])
    assert reply.outcome.code is ErrorCode.NOT_CONTROLLER, "and so back again"
    [reply] = await old.create_topics([NewTopic("b")])
    assert reply.outcome.code is ErrorCode.NONE
    assert user_topics(old) == {"b": 1}


async def test_m2_producer_ids_never_come_twice_over_take_overs() -> None:
    shared = Shared()
    controllers = [shared.controller() for _ in range(3)]
    await controllers[0].start()
    found: list[int] = []
    for turn in range(6):
        controller = controllers[turn % 3]
        if turn in (1, 2):
            await controller.start(standby=True)
        if turn:
            await controller.take_over()
        found += [await controller.next_producer_id() for _ in range(3)]
    assert len(set(found)) == len(found)


@dataclass
class Stalling(MetadataLog):
    """A log whose writer stands still behind append number `stalls_at`, until `release`; others go on meanwhile."""

    stalls_at: int = 0

    def append(self, values: Sequence[bytes], now_ms: int) -> MemoryTicket:
        if self.appends + 1 == self.stalls_at:
            self.hold()
        return super().append(values, now_ms)


@pytest.mark.parametrize("stalls_at", range(1, 7))
async def test_m2_a_take_over_within_a_transaction_aborts_it_in_its_first_record(stalls_at: int) -> None:
    """S0 "Controller Failover": the old one lives and knows nothing of it; it hears of it at its next append."""
    log = Stalling()
    old = await started(log, bounds=SMALL)
    await old.service.create_topics([NewTopic("before")])
    log.appends, log.stalls_at = 0, stalls_at
    rival = log.rival()
    new = build(rival, bounds=SMALL, ids=Ids(500))
    answers: list[Any] = []

    async def ask() -> None:
        answers.extend(await old.service.create_topics([NewTopic("a", 14)]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        await new.service.start(standby=True)
        seen, count = user_topics(new.service), len(rival.records())
        was_open = new.service.journal.open is not None
        assert was_open == (stalls_at < 6)
        await new.service.take_over()
        assert rival.records()[count] == (AbortTransactionRecord("Controller failover") if was_open else NoOpRecord())
        assert user_topics(new.service) == seen == ({"before": 1} if was_open else {"before": 1, "a": 14})
        log.release()
    assert [answer.outcome.code is ErrorCode.NONE for answer in answers] == [not was_open]
    [reply] = await new.service.create_topics([NewTopic("later", 5)])
    assert reply.outcome.code is ErrorCode.NONE
    third = await started(rival.survivor(), bounds=SMALL)
    assert user_topics(third.service) == {**seen, "later": 5}
    await old.service.follow()
    assert old.service.image == new.service.image


async def test_m2_no_decision_falls_within_a_transaction(autojump_clock: trio.testing.MockClock) -> None:
    """S0: one transaction at a time, no other record between its Begin and its End, and no look at half of it."""
    cluster = await started(bounds=SMALL)
    cluster.log.delay = 1
    answers: dict[str, Any] = {}

    async def ask(name: str, partitions: int) -> None:
        [answers[name]] = await cluster.service.create_topics([NewTopic(name, partitions)])

    count = len(cluster.log.records())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "wide", 20)
        await trio.sleep(2.5)
        nursery.start_soon(ask, "small", 1)
        nursery.start_soon(cluster.service.next_producer_id)
        nursery.start_soon(ask, "other", 20)
        await trio.sleep(2)
        assert user_topics(cluster.service) == {}
        assert answers == {}, "an answer waits for the End"
    assert {answer.outcome.code for answer in answers.values()} == {ErrorCode.NONE}
    records = cluster.log.records()[count:]
    marks = [type(record) for record in records if isinstance(record, BeginTransactionRecord | EndTransactionRecord)]
    assert marks == [BeginTransactionRecord, EndTransactionRecord] * 2
    assert [type(record) for record in records[:23]].count(EndTransactionRecord) == 1
    assert isinstance(records[22], EndTransactionRecord)
    assert user_topics((await started(cluster.log.survivor())).service) == {"wide": 20, "small": 1, "other": 20}


async def test_m2_who_leaves_in_the_middle_of_his_transaction_does_not_leave_it_open(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster = await started(bounds=SMALL)
    cluster.log.delay = 1
    with trio.move_on_after(2.5):
        await cluster.service.create_topics([NewTopic("wide", 20)])
    assert cluster.service.journal.open is None
    assert user_topics(cluster.service) == {"wide": 20}


async def test_m2_a_transaction_that_takes_too_long_is_aborted(autojump_clock: trio.testing.MockClock) -> None:
    """E.6: a time bound; nobody else can change anything meanwhile."""

    cluster = await started(bounds=SMALL._replace(transaction_seconds_max=3))
    cluster.service.journal._clock = VirtualClock()
    cluster.log.delay = 2
    [reply] = await cluster.service.create_topics([NewTopic("wide", 20)])
    assert reply.outcome.code is ErrorCode.REQUEST_TIMED_OUT
    cluster.log.delay = 0
    assert isinstance(cluster.log.records()[-1], AbortTransactionRecord)
    assert user_topics(cluster.service) == {}
    [reply] = await cluster.service.create_topics([NewTopic("wide", 20)])
    assert reply.outcome.code is ErrorCode.NONE


async def test_m2_a_transaction_that_is_too_large_is_aborted() -> None:
    """E.6: a size bound."""
    cluster = await started(bounds=SMALL._replace(transaction_bytes_max=1500))
    [reply] = await cluster.service.create_topics([NewTopic("wide", 40)])
    assert reply.outcome.code is ErrorCode.POLICY_VIOLATION
    assert isinstance(cluster.log.records()[-1], AbortTransactionRecord)
    [reply] = await cluster.service.create_topics([NewTopic("wide", 4)])
    assert reply.outcome.code is ErrorCode.NONE
    assert user_topics((await started(cluster.log.survivor())).service) == {"wide": 4}


async def test_m2_below_level_13_there_are_no_transactions() -> None:
    """E.1: their records are gated by metadata.version; what does not fit into one append is refused."""
    cluster = await started(bounds=Bounds(append_records_max=10))
    lowered = await cluster.service.update_features(
        [FeatureUpdate("metadata.version", 12, UpgradeType.UNSAFE_DOWNGRADE)]
    )
    assert lowered.code is ErrorCode.NONE
    count = len(cluster.log.records())
    [reply] = await cluster.service.create_topics([NewTopic("wide", 10)])
    assert reply.outcome.code is ErrorCode.POLICY_VIOLATION
    applied = await cluster.service.apply([NewTopic("a", 3), MorePartitions("a", 5)])
    assert not applied.refused
    records = cluster.log.records()[count:]
    assert not any(isinstance(record, BeginTransactionRecord) for record in records)
    assert len(records) == 6
    [gone] = await cluster.service.delete_topics([TopicRef("a")])
    assert gone.outcome.code is ErrorCode.NONE


class Shelf:
    """Snapshots in memory."""

    def __init__(self) -> None:
        self.images: list[MetadataImage] = []

    def newest(self) -> MetadataImage | None:
        return None

    async def write(self, image: MetadataImage) -> None:
        await trio.sleep(1)
        self.images.append(image)


async def test_m2_a_downgrade_is_answered_though_others_never_stop_changing_things(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its snapshot needs a moment at which nothing is under way: it waits for none, it makes one."""
    shelf = Shelf()
    cluster = build(snapshots=shelf)
    await cluster.service.start()
    cluster.log.delay = 1

    async def keep_changing(first: int, pause: float) -> None:
        await trio.sleep(pause)
        for number in range(first, 1_000_000, 4):
            await cluster.service.create_topics([NewTopic(f"t{number}")])
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(keep_changing, number, number / 4)
        await trio.sleep(5)
        with trio.fail_after(100):
            lowered = await cluster.service.update_features(
                [FeatureUpdate("metadata.version", 12, UpgradeType.UNSAFE_DOWNGRADE)]
            )
        assert lowered.code is ErrorCode.NONE
        [image] = shelf.images
        assert image.features["metadata.version"] == 12
        count = len(cluster.service.image.topics_by_name)
        await trio.sleep(5)
        assert len(cluster.service.image.topics_by_name) > count, "nobody was forgotten"
        nursery.cancel_scope.cancel()


async def test_m2_a_downgrade_is_answered_where_a_transaction_can_not_even_be_aborted(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody raised the level again meanwhile, and the disk filled up in the middle of his transaction."""
    shelf = Shelf()
    cluster = build(snapshots=shelf, bounds=SMALL)
    await cluster.service.start()
    journal, log = cluster.service.journal, cluster.log

    def refuse(values: Any, now_ms: int) -> None:
        raise LogWriteFailed(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    await journal.wait_writable()
    await journal.write([BeginTransactionRecord("half")])
    await journal.settle()
    log.append = refuse  # type: ignore[method-assign]
    with trio.fail_after(100):
        await cluster.service._snapshot_for_older_software()
    assert "a transaction is open" in caplog.text
    assert shelf.images == []


async def test_m2_what_never_becomes_durable_was_never_decided() -> None:
    """E.3: the state goes back to what was shown last, and this controller is one no more."""
    cluster = await started()

    async def lost(end_offset: int) -> None:
        raise LogWriteFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the flush failed")

    before = cluster.service.image
    cluster.log.durable = lost  # type: ignore[method-assign]
    [reply] = await cluster.service.create_topics([NewTopic("a")])
    assert reply.outcome.code is ErrorCode.NOT_CONTROLLER
    assert cluster.service.image is before is cluster.service.journal.newest
    assert not cluster.service.journal.active
