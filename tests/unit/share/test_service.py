"""The share coordinator over its logs: durable answers, its topic, deleted topics, crashes, pruning."""

import pytest
import trio
import trio.testing

from fencepost.coordinator.ports import LogUnreadable
from fencepost.coordinator.share.config import ShareStateConfig
from fencepost.coordinator.share.key_text import key_text
from fencepost.coordinator.share.records import Removed, decode
from fencepost.coordinator.share.values import InitialState, Outcome, ShareKey, SharePersister, StateBatch, StoredState
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import SHARE_STATE_TOPIC
from tests.unit.share.kit import KEY, OTHER, TOPIC_ID, World, update


@pytest.fixture
async def world() -> World:
    world = World()
    await world.start()
    return world


async def test_the_topic_is_created_at_the_first_request(world: World) -> None:
    """ShareCoordinatorService.shareGroupStateTopicConfigs; Kafka's KafkaApis creates it when it is looked for."""
    assert not world.topics.created
    await world.begin(KEY)
    await world.begin(OTHER)
    [topic] = world.topics.created
    assert (topic.name, topic.partitions) == (SHARE_STATE_TOPIC, 50)
    assert (topic.configs["cleanup.policy"], topic.configs["retention.ms"]) == ("delete", "-1")


async def test_without_its_topic_it_is_not_available(world: World) -> None:
    world.topics.refuses = True
    outcomes = await world.service.initialize({KEY: InitialState(1, 100)})
    assert outcomes[KEY].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not world.logs.logs


async def test_a_topic_of_another_size_is_not_used(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Share partitions would be looked for where they are not."""
    world.topics.add(SHARE_STATE_TOPIC, b"x" * 16, 3)
    found = await world.service.read(KEY, 0)
    assert found.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "set it to 3" in (found.message or "")
    await world.crash()
    assert "share groups cannot be used" in caplog.text


async def test_before_the_start_it_is_not_available() -> None:
    """ShareCoordinatorService: COORDINATOR_NOT_AVAILABLE while it is not active."""
    persister: SharePersister = World().service
    found = await persister.summaries({KEY: 0})
    assert (found[KEY].error, found[KEY].message) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "Share coordinator is not available.",
    )


async def test_all_survives_a_crash(world: World) -> None:
    """Replies rest on durable records only, and the fold of the log is the state."""
    await world.begin(KEY, OTHER)
    assert (await world.service.read(KEY, 5)).error is ErrorCode.NONE
    assert await world.write(KEY, update(110, (110, 119, 2, 1), complete=10, leader_epoch=5)) is ErrorCode.NONE
    assert await world.service.delete([OTHER]) == {OTHER: Outcome()}
    service = await world.crash()
    assert len(service) == 1
    assert (await service.read(KEY, 4)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert await service.read(KEY, 5) == StoredState(
        state_epoch=1, start_offset=110, batches=(StateBatch(110, 119, 2, 1),)
    )
    assert (await service.summaries({KEY: 0}))[KEY].delivery_complete_count == 10


async def test_writes_of_one_call_are_applied_in_their_order(world: World) -> None:
    """A share partition may be there more than once."""
    await world.begin(KEY)
    outcomes = await world.service.write(
        [(KEY, update(105, complete=1)), (OTHER, update()), (KEY, update(110, complete=2)), (KEY, update(107))]
    )
    assert [one.error for one in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    found = (await world.service.summaries({KEY: 0}))[KEY]
    assert (found.start_offset, found.delivery_complete_count) == (110, 2)


async def test_a_call_waits_for_the_logs_at_the_same_time(autojump_clock: trio.testing.MockClock) -> None:
    """Many share partitions become durable in one round of flushes, not one after another."""
    world = World()
    world.logs.delay = 1.0
    await world.start()
    keys = [ShareKey("gs", TOPIC_ID, number) for number in range(3)] + [OTHER]
    assert len({world.service.runtime.partition_for(key_text(key)) for key in keys}) > 1
    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.begin, *keys)
        await trio.testing.wait_all_tasks_blocked()
        assert all(log.batches for log in world.logs.logs.values())
    assert sum(log.appends for log in world.logs.logs.values()) == 4
    assert trio.current_time() > started


async def test_an_answer_waits_until_it_is_durable(world: World) -> None:
    """Also that of a read, which may rest on the records of others."""
    await world.begin(KEY)
    [log] = [log for log in world.logs.logs.values() if log.batches]
    log.hold()
    answers: list[ErrorCode] = []

    async def write() -> None:
        answers.append(await world.write(KEY, update()))

    async def read() -> None:
        answers.append((await world.service.read(KEY, 0)).error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        log.release()
    assert answers == [ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.parametrize(
    ("refused", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_what_the_log_refuses_is_answered_as_in_kafka(
    world: World, refused: ErrorCode, answer: ErrorCode
) -> None:
    """CoordinatorOperationExceptionHelper.handleOperationException; the state is as it was."""
    await world.begin(KEY)
    world.logs.refuse(refused)
    assert await world.write(KEY, update(110)) is answer
    world.logs.refuse(None)
    assert (await world.service.read(KEY, 0)).start_offset == 100


async def test_a_log_that_cannot_be_read_answers_for_itself_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """COORDINATOR_NOT_AVAILABLE; the others work."""
    await world.begin(KEY, OTHER)
    places = [world.service.runtime.partition_for(key_text(key)) for key in (KEY, OTHER)]
    assert places[0] != places[1]
    world.logs = world.logs.survivors()

    def damaged() -> None:
        raise LogUnreadable("damaged")

    monkeypatch.setattr(world.logs.logs[places[0]], "replay", damaged)
    monkeypatch.setattr(world.logs, "survivors", lambda: world.logs)
    service = await world.crash()
    outcomes = await service.initialize({KEY: InitialState(2, 5), OTHER: InitialState(2, 5)})
    assert [one.error for one in outcomes.values()] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]
    assert (await service.read(KEY, 0)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_the_state_of_a_deleted_topic_is_deleted(world: World) -> None:
    """ShareCoordinatorShard.maybeCleanupShareState: tombstones for its share partitions, of all groups."""
    more = KEY._replace(group_id="other")
    await world.begin(KEY, more, OTHER)
    world.topics.remove(TOPIC_ID)
    world.service.forget_topics([TOPIC_ID])
    assert [list(shard.state.shares) for shard in world.service.runtime.shards() if shard.state.shares] == [[OTHER]]
    records = [decode(*record) for log in world.logs.logs.values() for record in log.records()]
    assert {record.key for record in records if isinstance(record, Removed)} == {KEY, more}


async def test_a_topic_deleted_before_a_crash_is_forgotten_at_the_start(world: World) -> None:
    """The broker may die between the topic's deletion and the tombstones."""
    await world.begin(KEY, OTHER)
    world.topics.remove(TOPIC_ID)
    world.topics.add("t", b"new id of 16 b..", 3)
    assert len(await world.crash()) == 2, "where the metadata may have been lost, nothing is deleted"
    assert len(await world.crash(forget_deleted_topics=True)) == 1


async def test_the_number_of_share_partitions_is_bounded() -> None:
    """fencepost's own bound: each is kept in memory."""
    world = World(ShareStateConfig(share_partitions_max=1))
    await world.start()
    await world.begin(KEY)
    outcomes = await world.service.initialize({OTHER: InitialState(1, 0), KEY: InitialState(2, 0)})
    assert [one.error for one in outcomes.values()] == [ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]


async def test_redundant_records_are_named_once_snapshots_stand_for_them() -> None:
    """ShareCoordinatorService: cold share partitions get snapshots, so that pruning can go on."""
    world = World(partitions=1, config=ShareStateConfig(share_coordinator_state_topic_num_partitions=1))
    service = await world.start()
    await world.begin(KEY)
    assert await world.write(KEY, update(100, (100, 109, 2, 1))) is ErrorCode.NONE
    await world.begin(OTHER)
    assert list(service.redundant()) == [(0, 0)]
    world.clock.ms += world.config.share_coordinator_cold_partition_snapshot_interval_ms
    await service.write_cold()
    assert list(service.redundant()) == [(0, 3)]
    log = world.logs.logs[0]
    del log.batches[:3]  # as pruning leaves the log
    pruned = await world.crash()
    assert list(pruned.redundant()) == [(0, 3)]
    assert (await pruned.read(KEY, 0)).batches == (StateBatch(100, 109, 2, 1),)
    assert (await pruned.read(OTHER, 0)).start_offset == 100


async def test_a_log_that_refuses_snapshots_stops_no_other(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The next round tries again."""
    await world.begin(KEY, OTHER)
    refusing, taking = [world.logs.logs[world.service.runtime.partition_for(key_text(key))] for key in (KEY, OTHER)]
    refusing.refuses = ErrorCode.KAFKA_STORAGE_ERROR
    world.clock.ms += world.config.share_coordinator_cold_partition_snapshot_interval_ms
    await world.service.write_cold()
    assert (refusing.end_offset, taking.end_offset) == (1, 2)
    assert caplog.text.count("no snapshots, tried again later") == 1
    refusing.refuses = None
    await world.service.write_cold()
    assert (refusing.end_offset, taking.end_offset) == (2, 2)
