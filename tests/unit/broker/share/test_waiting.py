"""ShareFetch on a store that several brokers share: records that are elsewhere, and partitions that move away."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import trio
import trio.testing

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.place import Alone
from fencepost.broker.purgatory import Purgatory
from fencepost.broker.share.fetch import ShareFetch
from fencepost.broker.share.partitions import SharePartitions
from fencepost.broker.share.sessions import MemberKey, TopicIdPartition
from fencepost.coordinator.share.group_config import ShareGroupConfig
from fencepost.coordinator.share.values import Outcome, ShareKey, StateUpdate, StoredState
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api78_share_fetch import ShareFetchRequest
from tests.kit.clocks import VirtualClock
from tests.kit.late_log_store import LateLogStore
from tests.unit.log.kit import TP, batch, late_log, send, settle

pytestmark = pytest.mark.timeout(30)
MEMBER = MemberKey("g", "one")
PART = TopicIdPartition(bytes(16), TP.partition)


class States:
    """The share coordinator of a group that begins at offset 0."""

    def __init__(self) -> None:
        self.written: list[StateUpdate] = []

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        return StoredState(state_epoch=1, start_offset=0)

    async def write(self, updates: list[tuple[ShareKey, StateUpdate]]) -> list[Outcome]:
        self.written += [update for _, update in updates]
        return [Outcome()] * len(updates)


class Leader:
    """A broker with one partition, in which a batch is."""

    def __init__(self) -> None:
        self.log: PartitionLog | None = late_log(LateLogStore(MemoryStore()))
        send(self.log, batch())
        settle(self.log)
        settings = ShareGroupConfig().of_group({})
        self.node: Any = SimpleNamespace(
            config=load_config(),
            place=Alone(load_config()),
            clock=VirtualClock(),
            metrics=MagicMock(),
            purgatory=Purgatory(),
            response_bytes=SimpleNamespace(left=lambda least: 1 << 20),
            partition=lambda tp: self.log,
            share_settings=lambda group_id: settings,
            metadata=SimpleNamespace(image=SimpleNamespace(features={}), topic_name=lambda topic_id: TP.topic),
        )
        self.states = States()
        self.shares = SharePartitions(self.node, self.states)  # type: ignore[arg-type]

    async def fetch(self) -> ShareFetch:
        request = ShareFetchRequest(max_wait_ms=20_000, min_bytes=1, max_bytes=1 << 20, max_records=10, batch_size=10)
        fetch = ShareFetch(self.node, self.shares, request, MEMBER, {PART: TP})
        await fetch.run()
        return fetch


@pytest.fixture
async def leader(nursery: trio.Nursery) -> Leader:
    leader = Leader()
    await nursery.start(leader.shares.run)
    return leader


async def test_records_that_are_not_here_are_waited_for(leader: Leader, autojump_clock: trio.testing.MockClock) -> None:
    """Otherwise the member would ask again and again, and be answered without records."""
    log = leader.log
    assert log is not None
    log.segments.absent = range(1)

    async def arrive() -> None:
        await trio.sleep(2)
        log.segments.fetch_absent()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(arrive)
        fetch = await leader.fetch()
    assert [one.delivery_count for one in fetch.answers[PART].acquired_records] == [1]
    assert trio.current_time() == 2


async def test_a_fetch_that_waits_knows_that_the_partition_moves_away(
    leader: Leader, autojump_clock: trio.testing.MockClock
) -> None:
    """DelayedShareFetch.tryComplete: it is complete when the broker does not lead the partition any more."""
    await leader.fetch()
    log = leader.log
    assert log is not None

    async def move() -> None:
        await trio.sleep(2)
        leader.log = None
        log.disown("another broker leads it")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(move)
        fetch = await leader.fetch()
    assert fetch.answers[PART].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert trio.current_time() == 2
    assert leader.shares.led() == []


async def test_a_lock_that_ends_after_the_partition_has_moved_stores_nothing(
    leader: Leader, autojump_clock: trio.testing.MockClock
) -> None:
    """SharePartition.releaseAcquisitionLockOnTimeout is no matter of a former leader: the next one decides."""
    await leader.fetch()
    written = len(leader.states.written)
    leader.log = None
    await trio.sleep(40)
    assert len(leader.states.written) == written
