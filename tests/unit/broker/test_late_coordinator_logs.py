"""Coordinators over a log that other brokers write to, too: what they hear, and when their tickets settle."""

from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from fencepost.broker.coordinator_logs import PartitionCoordinatorLog
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.coordinator.group.commit import Commit
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.service import GroupService
from fencepost.coordinator.ports import LogNotHere, LogSuperseded, LogWriteFailed, ProducerTag, ReplayedBatch
from fencepost.coordinator.share.config import ShareStateConfig
from fencepost.coordinator.share.group_config import ShareGroupConfig
from fencepost.coordinator.share.service import ShareStates
from fencepost.coordinator.share.values import InitialState
from fencepost.protocol.control_records import end_txn_marker
from fencepost.protocol.errors import ErrorCode
from tests.kit.clocks import VirtualClock
from tests.kit.late_log_store import LateLogStore
from tests.kit.share_states import MemoryStates
from tests.unit.group.kit import T0, T1, Topics, commit
from tests.unit.log.kit import NOW_MS, late_log
from tests.unit.share.kit import KEY, OTHER, OTHER_ID, TOPIC_ID, update
from tests.unit.share.kit import Topics as ShareTopics

RECORD = [(b"key", b"value")]


class Shard:
    """A `LogListener` that remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def apply_external(self, batch: ReplayedBatch) -> None:
        self.heard.append((batch.base_offset, batch.producer_id, batch.marker_commits))

    def superseded(self) -> None:
        self.heard.append("superseded")

    def fenced(self) -> None:
        self.heard.append("fenced")


@pytest.fixture
def partition() -> PartitionLog:
    return late_log(LateLogStore(MemoryStore()))


@pytest.fixture
def shard() -> Shard:
    return Shard()


@pytest.fixture
async def log(partition: PartitionLog, shard: Shard) -> AsyncIterator[PartitionCoordinatorLog]:
    """The partition as a coordinator's log, with a flusher at work."""
    flusher = LogFlusher("fsync")
    log = PartitionCoordinatorLog(partition, flusher)
    log.listener = shard
    async with trio.open_nursery() as nursery:
        await nursery.start(flusher.run)
        yield log
        nursery.cancel_scope.cancel()


def guest(partition: PartitionLog, producer_id: int) -> None:
    """Another broker's coordinator ends a transaction here."""
    partition.segments.rows.write(end_txn_marker(producer_id, 0, True, 0, NOW_MS), partition.config)


async def test_a_guests_marker_is_absorbed_before_the_ticket_behind_it_is_durable(
    log: PartitionCoordinatorLog, partition: PartitionLog, shard: Shard
) -> None:
    ticket = log.append(RECORD, NOW_MS)
    guest(partition, 9)
    assert (ticket.end_offset, ticket.is_durable) == (None, False)
    await ticket.durable()
    assert shard.heard == [(0, 9, True)]
    assert (ticket.end_offset, ticket.is_durable) == (2, True)
    assert [batch.base_offset for batch in log.replay()] == [0, 1]


async def test_offsets_of_a_transaction_that_a_guest_ended_are_superseded(
    log: PartitionCoordinatorLog, partition: PartitionLog, shard: Shard
) -> None:
    """T16: the shard hears of it before the ticket raises; what stands before the refused batch is durable by then."""
    first = log.append(RECORD, NOW_MS)
    late = log.append(RECORD, NOW_MS, ProducerTag(9, 0))
    guest(partition, 9)
    with pytest.raises(LogSuperseded):
        await late.durable()
    assert shard.heard == ["superseded"]
    assert first.is_durable
    assert [(batch.base_offset, batch.producer_id) for batch in log.replay()] == [(0, 9), (1, -1)]


async def test_the_newest_ticket_moves_with_what_it_stands_for(
    log: PartitionCoordinatorLog, partition: PartitionLog
) -> None:
    log.append(RECORD, NOW_MS)
    newest = log.newest
    guest(partition, 9)
    await newest.durable()
    assert newest.end_offset == partition.high_watermark == 2


async def test_a_log_that_is_given_up_fences_its_shard(
    log: PartitionCoordinatorLog, partition: PartitionLog, shard: Shard
) -> None:
    ticket = log.append(RECORD, NOW_MS)
    partition.disown("broker 2 leads it")
    assert shard.heard == ["fenced"]
    with pytest.raises(LogWriteFailed) as failed:
        await ticket.durable()
    assert (type(failed.value), failed.value.code) == (LogWriteFailed, ErrorCode.NOT_COORDINATOR)
    with pytest.raises(LogWriteFailed):
        log.append(RECORD, NOW_MS)


async def test_a_replay_begins_again_when_the_bytes_arrived(
    log: PartitionCoordinatorLog, partition: PartitionLog, autojump_clock: trio.testing.MockClock
) -> None:
    await log.append(RECORD, NOW_MS).durable()
    partition.segments.absent = range(1)
    with pytest.raises(LogNotHere) as missed:
        list(log.replay())

    async def bring() -> None:
        await trio.sleep(3)
        partition.segments.fetch_absent()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bring)
        await missed.value.arrived()
    assert len(list(log.replay())) == 1


async def test_a_replay_waits_for_appends_that_are_not_settled(
    log: PartitionCoordinatorLog, partition: PartitionLog
) -> None:
    """After a conflict some appends may hold: nothing may be folded in before it is known which."""
    log.append(RECORD, NOW_MS)
    with pytest.raises(LogNotHere) as early:
        list(log.replay())
    guest(partition, 9)
    await early.value.arrived()
    assert [(batch.base_offset, batch.producer_id) for batch in log.replay()] == [(0, 9), (1, -1)]


# A whole coordinator over such a log


class OneLog:
    """The one partition of an internal topic."""

    count = 1

    def __init__(self, log: PartitionCoordinatorLog) -> None:
        self._log = log

    def log(self, partition: int) -> PartitionCoordinatorLog:
        return self._log

    def existing(self) -> list[int]:
        return [0]


@pytest.fixture
async def service(log: PartitionCoordinatorLog, nursery: trio.Nursery) -> GroupService:
    log.listener = None
    service = GroupService(
        GroupConfig(), OneLog(log), Topics("t", "u"), VirtualClock(), MemoryStates(), ShareGroupConfig(), lambda: "1"
    )
    await service.start()
    await nursery.start(service.run)
    assert await service.positions.commit(commit(1)) == [ErrorCode.NONE]
    return service


async def test_share_states_know_where_their_records_are_once_these_are_bound(
    log: PartitionCoordinatorLog, partition: PartitionLog, nursery: trio.Nursery
) -> None:
    """ShareCoordinatorOffsetsManager: the records below the oldest last snapshot may go; a guest's row shifts those."""
    topics = ShareTopics()
    for name, topic_id in (("t", TOPIC_ID), ("u", OTHER_ID)):
        topics.add(name, topic_id)
    config = ShareStateConfig(
        share_coordinator_state_topic_num_partitions=1, share_coordinator_cold_partition_snapshot_interval_ms=0
    )
    states = ShareStates(config, OneLog(log), topics, VirtualClock())
    await states.start(forget_deleted_topics=False)
    async with trio.open_nursery() as asking:
        asking.start_soon(states.initialize, {KEY: InitialState(1, 0)})
        await trio.testing.wait_all_tasks_blocked()
        guest(partition, 9)
    assert list(states.redundant()) == [(0, 1)]
    await states.initialize({OTHER: InitialState(1, 0)})
    await states.write([(KEY, update(5, (5, 5, 2, 1), complete=1))])
    assert list(states.redundant()) == [(0, 1)]
    await states.write_cold()
    assert list(states.redundant()) == [(0, 4)]


async def reloaded(service: GroupService) -> None:
    """Return when the shard serves again. Raises LogWriteFailed where it does not."""
    shard = service.runtime.at(0)
    assert shard is not None
    await service.runtime.loaded(shard)


async def test_offsets_of_an_overtaken_transaction_are_verified_again_and_open_none(
    service: GroupService, partition: PartitionLog
) -> None:
    """T15: the guest's marker has ended the transaction that was verified; who asked comes again through the check."""
    answers: list[list[ErrorCode]] = []

    async def send_offsets() -> None:
        answers.append(await service.positions.commit(commit(5, producer=ProducerTag(9, 0))))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_offsets)
        await trio.lowlevel.checkpoint()
        guest(partition, 9)
    assert answers == [[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]]
    await reloaded(service)
    assert not list(partition.producers.open_transactions())
    assert [one.offset for one in await service.positions.fetch("g", [T0], True)] == [1]


async def test_a_shard_comes_back_where_one_append_was_refused_and_another_holds(
    service: GroupService, partition: PartitionLog
) -> None:
    answers: list[list[ErrorCode]] = []

    async def send(command: Commit) -> None:
        answers.append(await service.positions.commit(command))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, commit(7, T1))
        nursery.start_soon(send, commit(5, producer=ProducerTag(9, 0)))
        await trio.lowlevel.checkpoint()
        guest(partition, 9)
    await reloaded(service)
    assert sorted(answers) == [[ErrorCode.NONE], [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]]
    assert [one.offset for one in await service.positions.fetch("g", [T0, T1], True)] == [1, 7]
