"""ShareFetch on a store that several brokers share: records that are elsewhere, and partitions that move away."""

from collections.abc import Callable, Generator
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
from fencepost.broker.share.led import LedPartition
from fencepost.broker.share.partitions import PAUSE_S_MAX, SharePartitions
from fencepost.broker.share.requests import STEP_PARTITIONS
from fencepost.broker.share.sessions import MemberKey, TopicIdPartition
from fencepost.broker.share.values import AckBatch, AckType
from fencepost.coordinator.ports import ProducerTag
from fencepost.coordinator.share.group_config import ShareGroupConfig
from fencepost.coordinator.share.values import DeliveryState, Outcome, ShareKey, StateBatch, StateUpdate, StoredState
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
        self.refuses = ErrorCode.NONE
        self.batches: tuple[StateBatch, ...] = ()

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        return StoredState(state_epoch=1, start_offset=0, batches=self.batches)

    async def write(self, updates: list[tuple[ShareKey, StateUpdate]]) -> list[Outcome]:
        self.written += [update for _, update in updates]
        return [Outcome(self.refuses)] * len(updates)


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
        await fetch.run(None)
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


async def test_many_partitions_are_looked_at_with_pauses(leader: Leader) -> None:
    """A session of many partitions does not hold up other clients: each step is of a few of them."""
    parts = {TopicIdPartition(bytes(16), number): ErrorCode.UNKNOWN_TOPIC_ID for number in range(STEP_PARTITIONS * 3)}
    fetch = ShareFetch(leader.node, leader.shares, ShareFetchRequest(), MEMBER, parts)
    steps = Steps()
    await fetch.run(steps)
    assert len(fetch.answers) == len(parts)
    assert steps.taken == 3


class Steps:
    """Counts the pauses."""

    def __init__(self) -> None:
        self.whole = self.shared = None
        self.taken = 0

    async def run(self, steps: Generator[None, None, Any]) -> Any:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value
            self.taken += 1


async def test_nothing_is_delivered_while_nothing_can_be_stored(
    leader: Leader, autojump_clock: trio.testing.MockClock
) -> None:
    """Beyond SharePartition, which delivers what it cannot store as often as is allowed, and then archives it."""
    leader.shares.sessions.of_group[MEMBER.group_id] = 1
    leader.states.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    await leader.fetch()
    await trio.sleep(40)  # the lock has ended, and that could not be stored
    fetch = await leader.fetch()
    assert fetch.answers == {}
    assert len(leader.states.written) < 20, "it is tried again at growing intervals"
    leader.states.refuses = ErrorCode.NONE
    began = trio.current_time()
    fetch = await leader.fetch()
    assert [one.delivery_count for one in fetch.answers[PART].acquired_records] == [2]
    assert trio.current_time() <= began + PAUSE_S_MAX
    written = len(leader.states.written)
    await trio.sleep(20)
    assert len(leader.states.written) == written, "it is not tried any more"


async def test_a_start_that_a_marker_moved_is_stored(leader: Leader) -> None:
    """The commit acknowledged all, and the leader ended before it stored that: the lag would stay (KIP-1226)."""
    leader.states.batches = (StateBatch(0, 0, DeliveryState.ACKNOWLEDGED, 1),)
    leader.shares.begin(MEMBER.group_id, PART, TP)
    await trio.testing.wait_all_tasks_blocked()
    assert [(one.start_offset, list(one.batches)) for one in leader.states.written] == [(1, [])]


@pytest.mark.parametrize("is_appended", [False, True])
async def test_only_an_acknowledgement_of_unknown_fate_takes_the_locks(leader: Leader, is_appended: bool) -> None:
    """A transaction whose append was refused leaves all as it was; of one whose flush failed nothing is known."""
    await leader.fetch()
    [led] = leader.shares.led()

    async def write(producer: ProducerTag, updates: list[Any], appended: Callable[[list[Outcome]], None]) -> Any:
        refused = [Outcome(ErrorCode.NOT_COORDINATOR)]
        appended([Outcome()] if is_appended else refused)
        await trio.lowlevel.checkpoint()
        return refused

    leader.node.share_states = SimpleNamespace(write_in_transaction=write)
    change = led.core.acknowledge_in(MEMBER.member_id, [AckBatch(0, 0, [AckType.ACCEPT])], 7)
    assert await leader.shares.store_in(ProducerTag(7, 0), [(led, change)]) == [ErrorCode.NOT_COORDINATOR]
    assert leader.shares.led() == ([] if is_appended else [led])


async def test_the_end_of_a_session_looks_at_the_share_partitions_of_its_group_alone(leader: Leader) -> None:
    """A thousand groups that leave a broker with a thousand share partitions cost no million steps."""
    for group_id in (MEMBER.group_id, "other"):
        assert isinstance(leader.shares.begin(group_id, PART, TP), LedPartition)
    await trio.testing.wait_all_tasks_blocked()
    leader.shares.leave(MEMBER, [])
    assert [led.key.group_id for led in leader.shares.led()] == ["other"]
    leader.shares.leave(MemberKey("other", "one"), [PART])
    assert leader.shares.led() == []
