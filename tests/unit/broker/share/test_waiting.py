"""ShareFetch: what it waits for, at which partitions it looks, and those that move away."""

from collections import Counter
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from fencepost.broker.share.fetch import ShareFetch
from fencepost.broker.share.led import LedPartition
from fencepost.broker.share.partitions import PAUSE_S_MAX
from fencepost.broker.share.requests import STEP_PARTITIONS
from fencepost.broker.share.sessions import MemberKey, TopicIdPartition
from fencepost.broker.share.values import AckBatch, AckType
from fencepost.coordinator.ports import ProducerTag
from fencepost.coordinator.share.values import DeliveryState, Outcome, ShareKey, StateBatch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api78_share_fetch import ShareFetchRequest
from tests.unit.broker.share.kit import MEMBER, PART, Leader
from tests.unit.log.kit import TP, batch

pytestmark = pytest.mark.timeout(30)
MANY = 20


@pytest.fixture
async def leader(nursery: trio.Nursery) -> Leader:
    leader = Leader()
    await nursery.start(leader.shares.run)
    return leader


@pytest.fixture
async def leader_of_many(nursery: trio.Nursery) -> Leader:
    leader = Leader(MANY)
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
    fetch = ShareFetch(leader.node, leader.shares, ShareFetchRequest(), MEMBER, leader.session, parts)
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


async def test_a_fetch_looks_at_partitions_that_changed_alone(
    leader_of_many: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours: what a record costs does not depend on how many partitions without records the member has."""
    leader, looks = leader_of_many, Counter[int]()
    can_deliver = LedPartition.can_deliver

    def counted(led: LedPartition) -> bool:
        looks[led.tp.partition] += 1
        return can_deliver(led)

    await leader.fetch()
    await leader.fetch(max_records=0)
    monkeypatch.setattr(LedPartition, "can_deliver", counted)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.fetch)
        await trio.testing.wait_all_tasks_blocked()
        looks.clear()
        leader.produce(7)
    assert set(looks) == {7}


async def test_every_partition_gets_its_turn(leader_of_many: Leader) -> None:
    """ShareSessionContext: one that gave records comes last in the next response, however many it still has."""
    leader = leader_of_many
    for _ in range(MANY):
        leader.produce(0)
    for number in range(1, MANY):
        leader.produce(number)
    served = []
    for _ in range(MANY + 2):
        served += [part.partition for part in (await leader.fetch(max_records=1)).answers]
        leader.produce(0)
    assert sorted(served[:MANY]) == list(range(MANY))
    assert served[MANY:] == [0, 0]


async def test_records_that_are_released_are_acquired_by_one_that_waits(
    leader: Leader, autojump_clock: trio.testing.MockClock
) -> None:
    """DelayedShareFetch watches the share partition, too: records come back without a change of the log."""
    await leader.fetch()

    async def release() -> None:
        await trio.sleep(1)
        leader.shares.sessions.of_group[MEMBER.group_id] = 1
        leader.shares.leave(MEMBER, [PART])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(release)
        fetch = await leader.fetch()
    assert trio.current_time() == 1
    assert [one.delivery_count for one in fetch.answers[PART].acquired_records] == [2]


async def test_a_fetch_that_wants_more_bytes_is_woken_by_each_record(
    leader: Leader, autojump_clock: trio.testing.MockClock
) -> None:
    """DelayedShareFetch.isMinBytesSatisfied: what is ready is too little, and each further batch may be enough."""

    async def produce() -> None:
        for _ in range(3):
            await trio.sleep(1)
            leader.produce(PART.partition)

    size = len(batch())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        fetch = await leader.fetch(min_bytes=4 * size)
        assert trio.current_time() == 3
    assert [(one.first_offset, one.last_offset) for one in fetch.answers[PART].acquired_records] == [(0, 3)]


async def test_other_rights_or_topics_have_all_partitions_checked_again(leader_of_many: Leader) -> None:
    """KafkaApis.handleShareFetchRequest authorizes each request: a session's partitions, with records or without."""
    leader = leader_of_many
    leader.session.check_by("these")
    await leader.fetch()
    leader.session.check_by("these")
    assert not leader.session.to_check
    leader.session.check_by("others")
    assert list(leader.session.to_check) == list(leader.session.partitions)


async def test_a_partition_that_failed_is_begun_by_the_next_fetch(leader: Leader) -> None:
    """SharePartitionManager.fencedSharePartitionHandler: the error is answered once; then all begins anew."""
    await leader.fetch()
    leader.shares.forget(ShareKey(MEMBER.group_id, *PART))
    fetch = await leader.fetch()
    assert [one.delivery_count for one in fetch.answers[PART].acquired_records] == [1]


async def test_no_share_partition_refers_to_a_session_that_ended(leader: Leader) -> None:
    """Ours: share partitions outlive sessions."""
    await leader.fetch()
    await leader.fetch(max_records=0)
    [led] = leader.shares.led()
    leader.session.rest(PART)
    assert list(led.waiting) == [leader.session]
    assert leader.session.close() == [PART]
    assert not led.waiting


async def test_each_fetch_counts_for_all_topics_of_the_session(leader: Leader) -> None:
    """SharePartitionManager.processShareFetch: totalShareFetchRequestRate of each topic, with records or without."""
    await leader.fetch()
    await leader.fetch(max_records=0)
    leader.session.count_fetches()
    assert leader.topic_fetches == {TP.topic: 2}
