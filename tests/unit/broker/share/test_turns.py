"""Fetches of several members that wait for one share partition: a change wakes one, which passes on what it leaves."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from fencepost.broker.log.reading import readable_bytes
from fencepost.broker.share.fetch import ShareFetch
from fencepost.broker.share.led import LedPartition
from fencepost.broker.share.sessions import TopicIdPartition
from fencepost.broker.share.values import AckType
from fencepost.coordinator.share.values import ShareKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import IsolationLevel
from tests.unit.broker.share.kit import MEMBER, PART, WAIT_S, Leader, Member
from tests.unit.log.kit import batch

pytestmark = pytest.mark.timeout(60)
LOCK_S = 30
OTHER = PART._replace(partition=1)


class Waiting:
    """Fetches under way, of members that have found too little; `got` has the offsets of the first partition."""

    def __init__(self, leader: Leader, nursery: trio.Nursery) -> None:
        self._leader, self._nursery = leader, nursery
        self.fetches: dict[str, ShareFetch] = {}
        """Those that have ended, by their members."""
        self._scopes: dict[str, trio.CancelScope] = {}

    async def begin(self, *members: Member, max_records: int = 10, min_bytes: int = 1) -> None:
        for member in members:
            self.start(member, max_records, min_bytes)
            await trio.testing.wait_all_tasks_blocked()

    def start(self, member: Member, max_records: int = 10, min_bytes: int = 1) -> None:
        self._nursery.start_soon(self._fetch, member, max_records, min_bytes)

    async def _fetch(self, member: Member, max_records: int, min_bytes: int) -> None:
        name = member.key.member_id
        with trio.CancelScope() as self._scopes[name]:
            self.fetches[name] = await member.fetch(max_records, min_bytes)

    def cancel(self, member: Member) -> None:
        self._scopes[member.key.member_id].cancel()

    async def got(self) -> dict[str, list[int]]:
        """What each has acquired whose fetch has ended, once all others wait."""
        await trio.testing.wait_all_tasks_blocked()
        return {
            name: [
                offset
                for answer in fetch.answers.values()
                for one in answer.acquired_records or ()
                for offset in range(one.first_offset, one.last_offset + 1)
            ]
            for name, fetch in self.fetches.items()
        }


@asynccontextmanager
async def leading(count: int = 1, **settings: int) -> AsyncIterator[tuple[Leader, Waiting]]:
    """A broker whose first batch member one holds, and fetches that end with the test."""
    leader = Leader(count, **settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(leader.shares.run)
        await leader.fetch(max_records=1)
        yield leader, Waiting(leader, nursery)
        nursery.cancel_scope.cancel()


async def test_a_record_wakes_one_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: Kafka's DelayedShareFetchPurgatory has all check, and all but one would look in vain."""
    async with leading() as (leader, waiting):
        looks: list[ShareFetch] = []
        is_ready = ShareFetch._is_ready
        monkeypatch.setattr(ShareFetch, "_is_ready", lambda fetch: looks.append(fetch) or is_ready(fetch))
        await waiting.begin(*(leader.join(f"m{number}") for number in range(20)))
        looks.clear()
        leader.produce(0)
        assert await waiting.got() == {"m0": [1]}
        assert len(looks) == 1


async def test_those_that_wait_longest_come_first() -> None:
    """Ours: in the order in which they found nothing."""
    async with leading() as (leader, waiting):
        await waiting.begin(*(leader.join(name) for name in "abc"))
        for number, name in enumerate("abc", 1):
            leader.produce(0)
            assert (await waiting.got())[name] == [number]


async def test_a_fetch_that_takes_a_part_leaves_the_rest_to_others() -> None:
    """DelayedShareFetch.onComplete: it has the purgatory check other fetches, for they may find records."""
    async with leading() as (leader, waiting):
        await waiting.begin(*(leader.join(name) for name in "abcd"), max_records=1)
        leader.produce(0, batches=3)
        assert await waiting.got() == {"a": [1], "b": [2], "c": [3]}


async def test_a_fetch_that_is_cancelled_passes_its_turn_on() -> None:
    """Ours: a connection that ends takes no other member's turn."""
    async with leading() as (leader, waiting):
        first, second = leader.join("a"), leader.join("b")
        await waiting.begin(first, second)
        waiting.cancel(first)
        leader.produce(0)
        assert await waiting.got() == {"b": [1]}


@pytest.mark.parametrize("is_released", [True, False])
async def test_a_session_that_ends_passes_its_turn_on(is_released: bool) -> None:
    """Ours: it ends after a change has woken its fetch, and before that looks."""
    async with leading() as (leader, waiting):
        first, second = leader.join("a"), leader.join("b")
        await waiting.begin(first, second)
        leader.produce(0)
        if is_released:
            first.leave()
        else:
            first.session.update((), [PART])
        assert (await waiting.got())["b"] == [1]


async def test_a_fetch_that_wants_more_bytes_lets_others_look() -> None:
    """DelayedShareFetch.isMinBytesSatisfied: each has its own; those that want too much wait for the next change."""
    async with leading() as (leader, waiting):
        members = [leader.join(name) for name in "abc"]
        size = len(batch())
        await waiting.begin(*members[:2], min_bytes=3 * size)
        await waiting.begin(members[2])
        leader.produce(0)
        assert await waiting.got() == {"c": [1]}
        leader.produce(0, batches=3)
        assert await waiting.got() == {"c": [1], "a": [2, 3, 4]}


async def test_a_member_between_two_fetches_holds_up_no_other() -> None:
    """Ours: it waits in front of others, but has no fetch that would look."""
    async with leading() as (leader, waiting):
        first, second = leader.join("a"), leader.join("b")
        await waiting.begin(first)
        waiting.cancel(first)
        await waiting.begin(second)
        leader.produce(0)
        assert await waiting.got() == {"b": [1]}
        leader.produce(0)
        await waiting.begin(first)
        assert (await waiting.got())["a"] == [2]


async def test_a_fetch_at_its_limit_leaves_other_partitions_to_others() -> None:
    """ShareFetch.maxFetchRecords: it was woken for two partitions, and one was enough."""
    async with leading(2) as (leader, waiting):
        both, other = leader.join("a", (0, 1)), leader.join("b", (1,))
        await waiting.begin(both, other, max_records=1)
        leader.produce(0)
        leader.produce(1)
        assert await waiting.got() == {"a": [1], "b": [0]}


async def test_locks_that_end_wake_as_many_as_they_serve(autojump_clock: trio.testing.MockClock) -> None:
    """SharePartition.releaseAcquisitionLockOnTimeout: it has fetches that wait check."""
    async with leading() as (leader, waiting):
        leader.produce(0)
        await leader.fetch(max_records=1)
        await trio.sleep(LOCK_S - WAIT_S / 2)
        await waiting.begin(*(leader.join(name) for name in "abc"), max_records=1)
        await trio.sleep(WAIT_S / 2)
        assert sorted((await waiting.got()).values()) == [[0], [1]]


@pytest.mark.parametrize("kind", [AckType.RELEASE, AckType.ACCEPT, AckType.REJECT])
async def test_an_acknowledgement_wakes_as_many_as_it_serves(kind: AckType) -> None:
    """SharePartition.canAcquireRecords: released records, or room below the limit of records in flight."""
    async with leading(partition_max_record_locks=2) as (leader, waiting):
        leader.produce(0, batches=4)
        await leader.fetch(max_records=1)
        await waiting.begin(*(leader.join(name) for name in "abc"), max_records=1)
        assert await waiting.got() == {}
        leader.one.acknowledge(PART, 0, 1, kind)
        got = sorted((await waiting.got()).values())
        assert got == ([[0], [1]] if kind is AckType.RELEASE else [[2], [3]])


async def test_records_that_reach_the_delivery_limit_make_room(autojump_clock: trio.testing.MockClock) -> None:
    """SharePartition.deliveryCountLimit: after its last delivery a record is archived, and the next one may come."""
    async with leading(partition_max_record_locks=1, delivery_count_limit=1) as (leader, waiting):
        leader.produce(0)
        await trio.sleep(LOCK_S - WAIT_S / 2)
        await waiting.begin(leader.join("a"), leader.join("b"), max_records=1)
        assert await waiting.got() == {}
        await trio.sleep(WAIT_S / 2)
        assert await waiting.got() == {"a": [1]}


@pytest.mark.parametrize("is_moved", [True, False])
async def test_all_know_that_the_share_partition_is_used_no_more(is_moved: bool) -> None:
    """SharePartitionManager: all fetches end when its state is reset, or another broker leads the partition."""
    async with leading() as (leader, waiting):
        members = [leader.join(f"m{number}") for number in range(5)]
        await waiting.begin(*members)
        waiting.cancel(members[0])
        if is_moved:
            log, leader.log = leader.log, None
            assert log is not None
            log.disown("another broker leads it")
        else:
            leader.shares.forget(ShareKey(MEMBER.group_id, *PART))
        await waiting.got()
        errors = {name: fetch.answers[PART].error_code for name, fetch in waiting.fetches.items()}
        assert errors == dict.fromkeys(("m1", "m2", "m3", "m4"), ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Crowd:
    """Members that do anything at any time, some of it at the same moment."""

    def __init__(self, rng: random.Random, leader: Leader, nursery: trio.Nursery) -> None:
        self._rng, self._leader, self._nursery = rng, leader, nursery
        self._members = [self._join() for _ in range(5)]
        self._waiting: dict[Member, tuple[trio.CancelScope, int]] = {}
        """Fetches under way, and the bytes that they want."""
        self.served = 0

    def _join(self) -> Member:
        return self._leader.join(f"{self._rng.random()}", self._rng.choice([(0,), (1,), (0, 1), (1, 0)]))

    def act(self) -> None:
        """Let anything happen."""
        rng, leader = self._rng, self._leader
        member = rng.choice(self._members)
        match rng.randrange(12):
            case 0 | 1 | 2:
                leader.produce(rng.randrange(2), rng.choice([1, 1, 4]))
            case 3 if member in self._waiting:
                self._waiting[member][0].cancel()
            case 4 if rng.randrange(3) == 0:
                self._members.remove(member)
                member.leave()
                self._members.append(self._join())
            case 5 if rng.randrange(4) == 0:
                leader.shares.forget(ShareKey(MEMBER.group_id, *rng.choice([PART, OTHER])))
            case 6:
                leader.states.refuses = rng.choice([ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
            case _ if member not in self._waiting:
                self._waiting[member] = scope, min_bytes = trio.CancelScope(), rng.choice([1, 1, 3 * len(batch())])
                self._nursery.start_soon(self._fetch, member, scope, min_bytes)
            case _:
                pass

    async def _fetch(self, member: Member, scope: trio.CancelScope, min_bytes: int) -> None:
        with scope:
            fetch = await member.fetch(self._rng.choice([1, 2, 10]), min_bytes)
            for part, answer in fetch.answers.items():
                for one in answer.acquired_records or ():
                    self.served += 1
                    self._nursery.start_soon(self._settle, member, part, one.first_offset, one.last_offset)
        self._waiting.pop(member)

    async def _settle(self, member: Member, part: TopicIdPartition, first: int, last: int) -> None:
        """Acknowledge it some time, or let the lock end."""
        await trio.sleep(self._rng.choice([0, 1, 20]))
        member.acknowledge(part, first, last, self._rng.choice([AckType.ACCEPT, AckType.RELEASE, AckType.REJECT]))

    def asleep(self) -> list[str]:
        """Members whose fetches wait for what lies there, once no task runs."""
        return [
            member.key.member_id
            for member, (_, min_bytes) in self._waiting.items()
            if sum(map(_readable_bytes, member.session.partitions.values())) >= min_bytes
        ]


def _readable_bytes(led: LedPartition | None) -> int:
    if led is None:
        return 0
    assert not led.error, "its fetches have ended"
    offset = led.core.next_fetch_offset()
    return readable_bytes(led.log, offset, IsolationLevel.READ_UNCOMMITTED) if led.can_deliver() else 0


@pytest.mark.parametrize("seed", range(20))
async def test_no_fetch_sleeps_while_there_are_records(seed: int, autojump_clock: trio.testing.MockClock) -> None:
    """Ours: whatever happens between a wake-up and the look, the turn is passed on."""
    rng = random.Random(seed)
    async with leading(2, partition_max_record_locks=4, delivery_count_limit=2) as (leader, _):
        async with trio.open_nursery() as nursery:
            crowd = Crowd(rng, leader, nursery)
            for _ in range(60):
                for _ in range(rng.choice([1, 1, 2, 5])):
                    crowd.act()
                await trio.testing.wait_all_tasks_blocked()
                assert crowd.asleep() == []
                await trio.sleep(rng.choice([0, 0, 1, 20]))
            nursery.cancel_scope.cancel()
        assert crowd.served
