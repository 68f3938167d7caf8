"""The metadata service: bootstrap, failover, durable before visible, producer ids, auto-creation, large changes."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from fencepost.broker.config.broker_config import load_config
from fencepost.coordinator.metadata.commands import (
    ConfigEdit,
    ConfigEdits,
    FeatureUpdate,
    MorePartitions,
    NewTopic,
    TopicRef,
)
from fencepost.coordinator.metadata.delta import FeaturesChanged, MetadataCorrupt, TopicCreated, TopicDeleted
from fencepost.coordinator.metadata.ports import Bounds
from fencepost.coordinator.ports import LogWriteFailed
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_record_types import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    TopicRecord,
)
from fencepost.protocol.topics import TopicPartition
from tests.unit.metadata.kit import Ids, MetadataLog, PowerCut, build, started, user_topics

SMALL = Bounds(append_records_max=3)
"""Batches of three records, so that nearly every change is a transaction over several."""


NEW_CLUSTER = {"metadata.version": 25, "transaction.version": 2, "group.version": 1, "share.version": 2}
"""The features of a new cluster, as Kafka's `Feature.defaultLevel` finalizes them."""


async def test_an_empty_log_gets_the_bootstrap_records_in_one_transaction() -> None:
    """E.2: Begin, metadata.version first, ..., End; and M4's features."""
    cluster = await started()
    records = cluster.log.records()
    assert records[0] == BeginTransactionRecord("Bootstrap records")
    assert records[1] == FeatureLevelRecord("metadata.version", 25)
    assert records[-1] == EndTransactionRecord()
    assert len(cluster.log.batches) == 1
    assert cluster.service.features.finalized == NEW_CLUSTER
    assert cluster.service.features.epoch == len(records)


async def test_older_metadata_keep_their_features_until_they_are_upgraded() -> None:
    """KIP-584: a newer broker finalizes nothing by itself; `kafka-features upgrade` does (M4)."""
    before = MetadataLog.of([FeatureLevelRecord("metadata.version", 25), FeatureLevelRecord("group.version", 1)])
    cluster = await started(before)
    assert cluster.service.features.finalized == {"metadata.version": 25, "group.version": 1}
    assert cluster.service.features.supported["share.version"] == (0, 2)
    assert (await cluster.service.update_features([FeatureUpdate("share.version", 2)])).code is ErrorCode.NONE
    assert cluster.service.features.finalized["share.version"] == 2


async def test_the_internal_topics_are_there_from_the_start() -> None:
    cluster = await started(config=load_config(assignments=["offsets.topic.num.partitions=7"]))
    topics = cluster.service.image.topics_by_name
    assert (topics["__consumer_offsets"].partitions, topics["__transaction_state"].partitions) == (7, 50)
    assert all(topic.internal and topic.configs["cleanup.policy"] == "compact" for topic in topics.values())
    assert cluster.service.log_config("__transaction_state").segment_bytes == 100 << 20


async def test_a_restart_reads_back_what_was_there_and_writes_nothing() -> None:
    first = await started()
    await first.service.create_topics([NewTopic("a", 3, configs={"retention.ms": "7"})])
    second = await started(first.log.survivor())
    assert second.service.image == first.service.image
    assert second.log.appends == 0
    assert second.heard == [], "start is no change"


async def test_a_reply_waits_until_the_change_is_durable(autojump_clock: trio.testing.MockClock) -> None:
    """S0 "Record Visibility": not shown, not answered, not told, before it can no longer be lost."""
    cluster = await started()
    cluster.log.delay = 5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.service.create_topics, [NewTopic("a")])
        await trio.sleep(4.9)
        assert user_topics(cluster.service) == {}
        assert cluster.heard == []
        assert not cluster.service.exists(TopicPartition("a", 0))
        await trio.sleep(0.2)
        assert user_topics(cluster.service) == {"a": 1}
        assert isinstance(cluster.heard[0], TopicCreated)


async def test_a_refusal_that_rests_on_what_is_not_durable_waits_too(autojump_clock: trio.testing.MockClock) -> None:
    """ "It exists already" must not be said of a topic that a crash could still undo."""
    cluster = await started()
    cluster.log.delay = 5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.service.create_topics, [NewTopic("a")])
        await trio.sleep(1)
        [reply] = await cluster.service.create_topics([NewTopic("a")])
        assert trio.current_time() >= 5
        assert reply.outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_change_shows_even_when_the_one_who_wanted_it_left(autojump_clock: trio.testing.MockClock) -> None:
    cluster = await started()
    cluster.log.delay = 5
    with trio.move_on_after(1):
        await cluster.service.create_topics([NewTopic("a")])
    assert user_topics(cluster.service) == {"a": 1}
    assert len(cluster.heard) == 1


async def test_an_image_that_somebody_holds_never_changes() -> None:
    cluster = await started()
    before = cluster.service.image
    await cluster.service.create_topics([NewTopic("a")])
    assert "a" not in before.topics_by_name
    assert "a" in cluster.service.image.topics_by_name


async def test_observers_hear_in_order_and_find_the_image_that_has_it() -> None:
    cluster = await started()
    found: list[bool] = []
    cluster.service.observer = lambda changes: found.append("a" in cluster.service.image.topics_by_name)
    await cluster.service.create_topics([NewTopic("a")])
    await cluster.service.delete_topics([TopicRef("a")])
    assert found == [True, False]


@pytest.mark.parametrize("together", [False, True])
async def test_a_large_change_is_one_transaction_over_several_batches(together: bool) -> None:
    """E.6: above the batch limits Begin..End; one change, one visibility. One commit may have all of it."""
    cluster = await started(MetadataLog(together=together), bounds=SMALL)
    before = len(cluster.log.batches)
    await cluster.service.create_topics([NewTopic("a", 10)])
    written = cluster.log.batches[before:]
    assert [len(batch) for batch in written] == [3, 3, 3, 3, 1]
    records = cluster.log.records()[-13:]
    assert isinstance(records[0], BeginTransactionRecord)
    assert isinstance(records[-1], EndTransactionRecord)
    assert user_topics(cluster.service) == {"a": 10}
    assert len(cluster.heard) == 1


async def test_more_than_ten_thousand_records_and_more_than_eight_mib() -> None:
    cluster = await started()
    await cluster.service.create_topics([NewTopic("wide", 25_000)])
    sizes = [len(batch) for batch in cluster.log.batches[1:]]
    assert sizes == [10_000, 10_000, 5_003]
    value = "0:1," * 8000 + "0:1"
    configs = {"leader.replication.throttled.replicas": value, "follower.replication.throttled.replicas": value}
    await cluster.service.create_topics([NewTopic(f"fat-{n}", 1, configs=dict(configs)) for n in range(150)])
    batches = cluster.log.batches[1 + len(sizes) :]
    assert len(batches) == 2
    assert all(sum(map(len, batch)) <= 8 << 20 for batch in batches)
    again = await started(cluster.log.survivor())
    assert again.service.image == cluster.service.image


@pytest.mark.parametrize("dies_at", range(1, 9))
async def test_a_crash_in_the_middle_leaves_all_or_nothing(dies_at: int) -> None:
    """S0 "Controller Failover": the next process aborts what is open, in its first record."""
    cluster = await started(bounds=SMALL)
    await cluster.service.create_topics([NewTopic("old")])
    before = user_topics(cluster.service)
    cluster.log.appends, cluster.log.dies_at = 0, dies_at
    try:
        await cluster.service.create_topics([NewTopic("a", 10), NewTopic("b", 5)])
        after = {**before, "a": 10, "b": 5}
    except PowerCut:
        after = before
    survivor = cluster.log.survivor()
    was_open = dies_at > 1 and after == before
    again = await started(survivor, bounds=SMALL)
    assert user_topics(again.service) == after
    if was_open:
        assert again.log.records()[-1] == AbortTransactionRecord("Controller failover")
    [reply] = await again.service.create_topics([NewTopic("later", 4)])
    assert reply.outcome.code is ErrorCode.NONE
    third = await started(again.log.survivor(), bounds=SMALL)
    assert user_topics(third.service) == {**after, "later": 4}


@pytest.mark.parametrize("dies_at", [2, 5, 30])
async def test_a_crash_inside_the_bootstrap_is_made_good_at_the_next_start(dies_at: int) -> None:
    """E.2's last bullet: Kafka would take the log for a full one here and never write the rest."""
    cluster = build(MetadataLog(dies_at=dies_at), bounds=SMALL)
    with pytest.raises(PowerCut):
        await cluster.service.start()
    again = await started(cluster.log.survivor(), bounds=SMALL)
    records = again.log.records()
    abort = records.index(AbortTransactionRecord("Controller failover"))
    assert records[abort + 1] == BeginTransactionRecord("Bootstrap records")
    assert again.service.features.finalized == NEW_CLUSTER
    assert set(again.service.image.topics_by_name) == {"__consumer_offsets", "__transaction_state"}


async def test_a_log_that_refuses_a_batch_gets_an_abort_and_goes_on() -> None:
    cluster = await started(bounds=SMALL)
    cluster.log.appends, cluster.log.refuses = 0, 3
    [reply] = await cluster.service.create_topics([NewTopic("a", 10)])
    assert reply.outcome.code is ErrorCode.NOT_CONTROLLER
    assert user_topics(cluster.service) == {}
    assert isinstance(cluster.log.records()[-1], AbortTransactionRecord)
    [reply] = await cluster.service.create_topics([NewTopic("a", 10)])
    assert reply.outcome.code is ErrorCode.NONE
    assert user_topics((await started(cluster.log.survivor(), bounds=SMALL)).service) == {"a": 10}


async def test_a_log_that_refuses_a_single_batch_changes_nothing_and_is_an_answer() -> None:
    """House rule: wire errors are values."""
    cluster = await started()
    await cluster.service.create_topics([NewTopic("b")])

    async def refused(ask: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        cluster.log.appends, cluster.log.refuses = 0, 1
        return await ask(*arguments)

    service = cluster.service
    before = service.image
    [created] = await refused(service.create_topics, [NewTopic("a")])
    [deleted] = await refused(service.delete_topics, [TopicRef("b")])
    [(name, grown)] = await refused(service.create_partitions, [MorePartitions("b", 2)])
    [altered] = await refused(service.alter_configs, [ConfigEdits(2, "b", (ConfigEdit("segment.ms", 0, "7"),))])
    updated = await refused(service.update_features, [FeatureUpdate("transaction.version", 1, 2)])
    codes = {outcome.code for outcome in (created.outcome, deleted.outcome, grown, altered, updated)}
    assert (codes, name) == ({ErrorCode.NOT_CONTROLLER}, "b")
    assert await refused(service.create_topics_if_allowed, ["a"]) == {"a": ErrorCode.LEADER_NOT_AVAILABLE}
    with pytest.raises(LogWriteFailed):
        await refused(service.next_producer_id)
    assert service.image is before
    await service.create_topics([NewTopic("a")])
    assert user_topics(service) == {"a": 1, "b": 1}
    assert await service.next_producer_id() == 1, "a block that was not reserved is not used up"


async def test_a_log_with_something_else_in_it_stops_the_start_with_the_offset() -> None:
    log = MetadataLog.of([FeatureLevelRecord("metadata.version", 25)])
    log.batches.append([b"\x01\x63\x00"])
    with pytest.raises(MetadataCorrupt, match="offset 1: metadata record type 99"):
        await started(log)


async def test_producer_ids_start_at_one_and_never_come_twice() -> None:
    """Section 0, row 23, and row 11: blocks of 1000, reserved in the log before the first id is given out."""
    first = await started()
    ids = [await first.service.next_producer_id() for _ in range(1001)]
    assert ids == list(range(1, 1002))
    second = await started(first.log.survivor())
    assert await second.service.next_producer_id() == 2001, "what was left of a block is lost with the process"


async def test_producer_ids_asked_for_at_once_are_different(autojump_clock: trio.testing.MockClock) -> None:
    cluster = await started()
    cluster.log.delay = 1
    ids: list[int] = []

    async def ask() -> None:
        ids.append(await cluster.service.next_producer_id())

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask)
    assert sorted(ids) == list(range(1, 51))


async def test_no_producer_id_is_given_out_before_its_block_is_durable(autojump_clock: trio.testing.MockClock) -> None:
    cluster = await started()
    cluster.log.delay = 3
    await cluster.service.next_producer_id()
    assert trio.current_time() >= 3


async def test_many_who_ask_for_a_topic_at_once_create_it_once(autojump_clock: trio.testing.MockClock) -> None:
    cluster = await started(config=load_config(assignments=["num.partitions=4"]))
    cluster.log.delay = 1
    codes: list[ErrorCode] = []

    async def ask() -> None:
        codes.extend((await cluster.service.create_topics_if_allowed(["a"])).values())
        assert user_topics(cluster.service) == {"a": 4}, "NONE means that it can be used now"

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask)
    assert codes == [ErrorCode.NONE] * 20
    assert len([record for record in cluster.log.records() if record == TopicRecord("a", record_id(cluster))]) == 1


def record_id(cluster) -> bytes:
    return cluster.service.image.topics_by_name["a"].topic_id


async def test_auto_creation_can_be_off_and_refuses_bad_names() -> None:
    off = await started(config=load_config(assignments=["auto.create.topics.enable=false"]))
    assert await off.service.create_topics_if_allowed(["a", "a/b", "__consumer_offsets"]) == {
        "a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "__consumer_offsets": ErrorCode.NONE,
    }
    on = await started()
    assert await on.service.create_topics_if_allowed(["a/b"]) == {"a/b": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert user_topics(on.service) == {}


async def test_the_view_that_the_coordinators_have() -> None:
    cluster = await started(ids=Ids(500))
    [reply] = await cluster.service.create_topics([NewTopic("a", 2)])
    view = cluster.service
    assert (view.topic_id("a"), view.topic_name(reply.topic_id)) == (reply.topic_id, "a")
    assert (view.topic_id("b"), view.topic_name(bytes(16))) == (None, None)
    assert [view.exists(TopicPartition("a", number)) for number in (-1, 0, 1, 2)] == [False, True, True, False]


async def test_growth_and_deletion_reach_the_image_and_the_observer() -> None:
    cluster = await started()
    await cluster.service.create_topics([NewTopic("a")])
    [(name, outcome)] = await cluster.service.create_partitions([MorePartitions("a", 3)])
    assert (name, outcome.code) == ("a", ErrorCode.NONE)
    assert user_topics(cluster.service) == {"a": 3}
    await cluster.service.delete_topics([TopicRef("a")])
    assert user_topics(cluster.service) == {}
    assert isinstance(cluster.heard[-1], TopicDeleted)
    assert not any(isinstance(change, FeaturesChanged) for change in cluster.heard)
