"""What transactions acknowledged, in the share coordinator: pending until their marker, over crashes and pruning."""

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from fencepost.coordinator.ports import ProducerTag
from fencepost.coordinator.share.config import ShareStateConfig
from fencepost.coordinator.share.values import (
    DeliveryState,
    InitialState,
    Outcome,
    PendingBatch,
    ShareKey,
    StateBatch,
    StoredState,
)
from fencepost.protocol.errors import ErrorCode
from tests.kit.memory_log import CoordinatorLog
from tests.unit.share.kit import KEY, OTHER, TOPIC_ID, World, update

AVAILABLE, _, ACKNOWLEDGED, _, ARCHIVED, TX_PENDING = DeliveryState
PRODUCER = 7
ACCEPTED = (100, 109, ACKNOWLEDGED, 3)


def appended(outcomes: Sequence[Outcome]) -> None:
    """Nothing: no member holds records here."""


async def pend(
    world: World, *batches: tuple[int, int, int, int], key: ShareKey = KEY, producer: int = PRODUCER, **epochs: int
) -> ErrorCode:
    what = update(100, *(batches or (ACCEPTED,)), **epochs)
    [outcome] = await world.service.write_in_transaction(ProducerTag(producer, 0), [(key, what)], appended)
    return outcome.error


def log_of(world: World, key: ShareKey = KEY) -> CoordinatorLog:
    return world.logs.log(world.service.partition_of(key))


def mark(world: World, *, commit: bool, producer: int = PRODUCER, key: ShareKey = KEY) -> None:
    """A durable marker, of which the service learns."""
    append_marker(world, commit=commit, producer=producer, key=key)
    log_of(world, key).durable_end = log_of(world, key).end_offset
    world.service.complete_transaction(world.service.partition_of(key), producer, commit)


def append_marker(world: World, *, commit: bool, producer: int = PRODUCER, key: ShareKey = KEY) -> None:
    """A marker that is not durable yet."""
    log_of(world, key).append_marker(producer, commit)
    world.service.marker_appended(world.service.partition_of(key), producer, commit)


@pytest.fixture
async def world() -> World:
    """All in one partition; each third write of a share partition is a snapshot."""
    config = ShareStateConfig(
        share_coordinator_state_topic_num_partitions=1, share_coordinator_snapshot_update_records_per_snapshot=2
    )
    world = World(config, partitions=1)
    await world.start()
    await world.begin(KEY, OTHER)
    return world


@pytest.mark.parametrize("crash", [False, True])
async def test_a_leader_reads_what_is_pending(world: World, crash: bool) -> None:
    """It has to hold the records back, and to know whose end it waits for; all else of the state is as it was."""
    assert await pend(world) is ErrorCode.NONE
    assert await pend(world, (110, 110, ARCHIVED, 1), producer=8) is ErrorCode.NONE
    if crash:
        await world.crash()
    assert await world.service.read(KEY, 0) == StoredState(
        state_epoch=1,
        start_offset=100,
        batches=(StateBatch(100, 109, TX_PENDING, 3), StateBatch(110, 110, TX_PENDING, 1)),
        pending=(
            PendingBatch(PRODUCER, StateBatch(*ACCEPTED)),
            PendingBatch(8, StateBatch(110, 110, ARCHIVED, 1)),
        ),
    )


@pytest.mark.parametrize("crash", ["before the marker", "after it"])
@pytest.mark.parametrize("commit", [True, False])
async def test_the_marker_decides(world: World, commit: bool, crash: str) -> None:
    """A commit counts without another record; an abort keeps the delivery count."""
    assert await pend(world) is ErrorCode.NONE
    if crash == "before the marker":
        await world.crash()
    mark(world, commit=commit)
    if crash == "after it":
        await world.crash()
    found = await world.service.read(KEY, 0)
    assert found.pending == ()
    assert found.batches == (StateBatch(100, 109, ACKNOWLEDGED if commit else AVAILABLE, 3),)


@pytest.mark.parametrize("commit", [True, False])
async def test_a_snapshot_behind_the_marker_has_what_it_decided(world: World, commit: bool) -> None:
    """Also before the marker is durable: a replay finds the snapshot behind it, in place of all before."""
    await pend(world)
    append_marker(world, commit=commit)
    for _ in range(3):  # the third is a snapshot
        assert await world.write(KEY, update(100)) is ErrorCode.NONE
    world.service.complete_transaction(world.service.partition_of(KEY), PRODUCER, commit)
    prune(world)
    await world.crash()
    found = await world.service.read(KEY, 0)
    assert found.batches == (StateBatch(100, 109, ACKNOWLEDGED if commit else AVAILABLE, 3),)


@pytest.mark.parametrize("has_guests", [False, True])
async def test_no_snapshot_comes_while_others_may_write_the_marker(has_guests: bool) -> None:
    """A marker of another broker could come before the snapshot, which a replay then takes in place of all before."""
    world = World(ONE_PARTITION, partitions=1, has_guests=has_guests)
    await world.start()
    await world.begin(KEY)
    await pend(world)
    for _ in range(5):
        assert await world.write(KEY, update(100)) is ErrorCode.NONE
    world.clock.ms += 10**9
    await world.service.write_cold()
    assert (kinds(world).count(SNAPSHOT) == 1) == has_guests
    mark(world, commit=True)
    for _ in range(3):
        await world.write(KEY, update(100))
    assert SNAPSHOT in kinds(world)[-3:]
    await world.crash()
    assert (await world.service.read(KEY, 0)).batches == (StateBatch(100, 109, ACKNOWLEDGED, 3),)


async def test_transactions_pause_for_a_snapshot_that_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    """If one is always undecided: COORDINATOR_LOAD_IN_PROGRESS, so that the leader asks again."""
    monkeypatch.setattr("fencepost.coordinator.share.service.UPDATES_SPARE", 0)
    world = World(ONE_PARTITION, partitions=1, has_guests=True)
    await world.start()
    await world.begin(KEY)
    await pend(world)
    for _ in range(4):
        assert await pend(world, producer=8) is ErrorCode.NONE
        assert await world.write(KEY, update(100)) is ErrorCode.NONE
    assert await pend(world, producer=8) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    mark(world, commit=True)
    mark(world, commit=True, producer=8)
    assert await pend(world, producer=8) is ErrorCode.NONE


async def test_records_that_are_placed_after_their_marker_hold_nothing_back(world: World) -> None:
    """A log that binds its offsets late: the task that waits for its records may run after the marker came."""
    await pend(world)
    mark(world, commit=True)
    shard = world.service.runtime.at(0)
    assert shard is not None
    shard.state.pending.place(PRODUCER, 0)
    assert list(shard.state.pending.first_offsets) == []


SNAPSHOT = b"\x00\x00"
"""How the key of a ShareSnapshot begins."""
ONE_PARTITION = ShareStateConfig(
    share_coordinator_state_topic_num_partitions=1, share_coordinator_snapshot_update_records_per_snapshot=2
)


def kinds(world: World) -> list[bytes]:
    """The type of each record in the log."""
    return [(key or b"")[:2] for batch in log_of(world).batches for key, _ in batch.records]


async def test_the_leader_is_informed_when_the_marker_is_durable(world: World) -> None:
    """Before that a crash could still undo what the marker decides."""
    reported: list[ShareKey] = []
    world.service.ended = lambda key, producer, commit: reported.append(key)
    await pend(world)
    append_marker(world, commit=True)
    append_marker(world, commit=True)  # written twice
    assert reported == []
    world.service.complete_transaction(world.service.partition_of(KEY), PRODUCER, True)
    assert reported == [KEY]


async def test_each_share_partition_is_reported(world: World) -> None:
    """To the leader, which lets go of its records; once, and of other producers not at all."""
    reported: list[tuple[ShareKey, int, bool]] = []
    world.service.ended = lambda key, producer, commit: reported.append((key, producer, commit))
    await pend(world)
    await pend(world, key=OTHER)
    mark(world, commit=True, producer=8)
    mark(world, commit=True)
    mark(world, commit=False)
    assert reported == [(KEY, PRODUCER, True), (OTHER, PRODUCER, True)]


async def test_an_answer_waits_until_it_is_durable(world: World) -> None:
    log_of(world).hold()
    answers: list[ErrorCode] = []

    async def write() -> None:
        answers.append(await pend(world))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        log_of(world).release()
    assert answers == [ErrorCode.NONE]


async def test_the_answer_to_a_repeated_request_waits_for_what_the_first_one_wrote(world: World) -> None:
    """The client commits after it: a power cut must not take the acknowledgement and leave the commit."""
    log_of(world).hold()
    answers: list[Outcome] = []

    async def repeat() -> None:
        producer = ProducerTag(PRODUCER, 0)
        answers.extend(await world.service.write_in_transaction(producer, [(KEY, update(100))], appended))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pend, world)
        await trio.testing.wait_all_tasks_blocked()
        end_offset = log_of(world).end_offset
        nursery.start_soon(repeat)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        assert log_of(world).end_offset == end_offset, "there is nothing to add"
        log_of(world).release()
    assert answers == [Outcome()]


async def test_what_is_refused_is_known_at_once(world: World) -> None:
    """Before another task runs: the member holds its records again, and a repeated request is refused, too."""
    log_of(world).hold()
    seen: list[list[ErrorCode]] = []

    async def write() -> None:
        await world.service.write_in_transaction(
            ProducerTag(PRODUCER, 0),
            [(KEY, update(100, ACCEPTED)), (OTHER, update(100, ACCEPTED, state_epoch=0))],
            lambda outcomes: seen.append([outcome.error for outcome in outcomes]),
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == [[ErrorCode.NONE, ErrorCode.FENCED_STATE_EPOCH]]
        log_of(world).release()


async def test_no_other_task_runs_before_all_is_appended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row T16: the transaction cannot end between the check of the caller and the append."""
    monkeypatch.setattr("fencepost.coordinator.share.service.KEYS_AT_ONCE", 1)
    ran, seen = trio.Event(), []

    async def other() -> None:
        ran.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await world.service.write_in_transaction(
            ProducerTag(PRODUCER, 0),
            [(KEY, update(100, ACCEPTED)), (OTHER, update(100, ACCEPTED))],
            lambda outcomes: seen.append(ran.is_set()),
        )
    assert seen == [False]


async def test_an_old_leader_is_fenced(world: World) -> None:
    """As in maybeGetWriteStateError."""
    await world.service.read(KEY, 5)
    assert await pend(world, leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert await pend(world, state_epoch=0, leader_epoch=5) is ErrorCode.FENCED_STATE_EPOCH
    assert await pend(world, key=ShareKey("other", TOPIC_ID, 0)) is ErrorCode.INVALID_REQUEST


async def test_a_fenced_producer_leaves_nothing(world: World) -> None:
    log_of(world).refuses = ErrorCode.INVALID_PRODUCER_EPOCH
    assert await pend(world) is ErrorCode.INVALID_PRODUCER_EPOCH
    log_of(world).refuses = None
    assert (await world.service.read(KEY, 0)).pending == ()


async def test_a_deleted_share_partition_has_nothing_pending(world: World) -> None:
    """Of a deleted group or topic: the marker finds nothing, also if the share partition begins again."""
    await pend(world)
    await world.service.delete([KEY])
    await world.begin(KEY)
    assert (await world.service.read(KEY, 0)).pending == ()
    mark(world, commit=True)
    await world.crash()
    assert (await world.service.read(KEY, 0)).batches == ()


@pytest.mark.parametrize("pruned", [False, True])
async def test_altered_offsets_void_what_is_pending(world: World, pruned: bool) -> None:
    """AlterShareGroupOffsets begins the share partition at a new state epoch: earlier acknowledgements mean nothing."""
    await pend(world)
    assert (await world.service.initialize({KEY: InitialState(2, 50)}))[KEY].error is ErrorCode.NONE
    if pruned:
        prune(world)
    await world.crash()
    mark(world, commit=True)
    found = await world.service.read(KEY, 0)
    assert (found.state_epoch, found.start_offset, found.batches, found.pending) == (2, 50, (), ())


async def test_the_same_initialization_leaves_it(world: World) -> None:
    """A group coordinator that got no answer asks again."""
    await pend(world)
    await world.service.initialize({KEY: InitialState(1, 100)})
    assert len((await world.service.read(KEY, 0)).pending) == 1


def prune(world: World) -> None:
    """Delete what the service calls redundant."""
    for partition, offset in world.service.redundant():
        log = world.logs.log(partition)
        log.batches = [batch for batch in log.batches if batch.base_offset >= offset]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("pruned", ["while it is pending", "after its end", "after the next snapshot"])
async def test_pruning_leaves_what_is_needed(world: World, pruned: str, commit: bool) -> None:
    """A snapshot has neither what is pending, nor what was pending when it was written: its records stay."""
    await pend(world)
    end_offset = log_of(world).end_offset
    for key in (KEY, OTHER, KEY, OTHER, KEY, OTHER):  # the third of each is a snapshot
        assert await world.write(key, update(100)) is ErrorCode.NONE
    [(_, redundant)] = world.service.redundant()
    assert redundant == end_offset - 1
    if pruned == "while it is pending":
        prune(world)
        await world.crash()
    mark(world, commit=commit)
    assert [offset for _, offset in world.service.redundant()] == [redundant]
    if pruned == "after the next snapshot":
        for key in (KEY, OTHER, KEY, OTHER, KEY, OTHER):
            assert await world.write(key, update(100)) is ErrorCode.NONE
        [(_, later)] = world.service.redundant()
        assert later > redundant
    prune(world)
    await world.crash()
    found = await world.service.read(KEY, 0)
    assert found.batches == (StateBatch(100, 109, ACKNOWLEDGED if commit else AVAILABLE, 3),)
