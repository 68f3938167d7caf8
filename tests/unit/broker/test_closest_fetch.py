"""Reading from the closest broker: what leaders and followers answer to a Fetch (KIP-392)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from fencepost.broker.cluster.engine import StoreUnavailable
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.peers.peer import Peer
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.followers import LISTENER, ME, Following
from tests.kit.garbage import collect
from tests.kit.growing import growth_of, opened
from tests.kit.shared_store import Stores
from tests.unit.log.kit import TP, batch, end, joined, send, transact

COMMITTED = 1


class World:
    """Broker 1 leads `events-0` and has written to it; broker 7 follows it."""

    def __init__(self, inline_bytes: int = 1 << 14) -> None:
        self.stores = Stores()
        self.owner = self.stores.broker(1, inline_bytes)
        self.log = opened(self.owner)
        self.write(3)
        self.follower = Following(self.stores, self.owner)

    def write(self, records: int) -> None:
        """One batch, committed."""
        send(self.log, batch(records))
        self.owner.round()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Following]:
        """The follower, while it follows."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.follower.run)
            await trio.testing.wait_all_tasks_blocked()
            with trio.fail_after(20):
                yield self.follower
            nursery.cancel_scope.cancel()


def leader(*racks: str) -> Following:
    """Broker 7 in rack b leads `events`; brokers 1, 2, ... are in these racks."""
    stores = Stores()
    broker = stores.broker(ME)
    log = opened(broker)
    send(log, batch(3))
    broker.round()
    found = Following(stores, broker, log)
    found.replicas.see([Peer(number, rack, {"PLAINTEXT": LISTENER}) for number, rack in enumerate(racks, 1)])
    return found


def bases(answer: Any) -> list[int]:
    """The base offsets of the batches of an answer."""
    return [header.base_offset for _, header in iter_headers(joined(answer.records))]


# The leader


async def test_a_leader_names_the_broker_of_the_consumers_rack() -> None:
    """KIP-392: it returns no records, and the consumer need not wait for any."""
    answer = await leader("a", "c").fetch(rack="a", max_wait_ms=60_000)
    assert (answer.preferred_read_replica, answer.error_code, answer.records) == (1, ErrorCode.NONE, b"")
    assert (answer.high_watermark, answer.log_start_offset) == (3, 0)


@pytest.mark.parametrize(("rack", "version"), [("b", 12), ("", 12), ("d", 12), ("a", 10)])
async def test_a_leader_serves_all_others_itself(rack: str, version: int) -> None:
    """KIP-392: its own rack, no rack, a rack without a broker, a version that cannot tell a rack."""
    answer = await leader("a", "c").fetch(rack=rack, version=version)
    assert (answer.preferred_read_replica, bases(answer)) == (-1, [0])


async def test_a_broker_that_may_soon_be_dead_is_not_named() -> None:
    """KIP-392: only replicas in sync are chosen; here those whose lease is current, and which are ready."""
    broker = leader()
    broker.replicas.see([Peer(1, "a", {"PLAINTEXT": LISTENER}, serves=False)])
    assert (await broker.fetch(rack="a")).preferred_read_replica == -1


async def test_a_broker_without_the_consumers_listener_is_not_named() -> None:
    """KIP-392: Kafka chooses among the endpoints of that listener."""
    broker = leader()
    broker.replicas.see([Peer(1, "a", {"REPLICATION": LISTENER})])
    assert (await broker.fetch(rack="a")).preferred_read_replica == -1


async def test_brokers_of_one_rack_share_the_partitions() -> None:
    """KIP-392 leaves the choice to the selector: each partition has one broker, so that its rows are cached once."""
    broker = leader("a", "a", "c")
    partitions = [TopicPartition(TP.topic, number) for number in range(40)]
    chosen = [(await broker.fetch(0, tp, rack="a")).preferred_read_replica for tp in partitions]
    assert chosen == [(await broker.fetch(0, tp, rack="a")).preferred_read_replica for tp in partitions]
    assert set(chosen) == {1, 2}
    assert 10 <= chosen.count(1) <= 30


async def test_an_offset_out_of_range_is_the_leaders_answer() -> None:
    """KIP-392: a replica is chosen only if it has the offset. Otherwise a consumer would go to and fro for ever."""
    answer = await leader("a").fetch(4, rack="a")
    assert (answer.error_code, answer.preferred_read_replica) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


# The follower


async def test_a_follower_reads_what_is_committed_with_its_aborted_transactions() -> None:
    """KIP-392: high watermark, last stable offset and aborted transactions are as those of the leader."""
    world = World()
    transact(world.log, 5, 0, 0)
    world.owner.round()
    end(world.log, 5, 0, commit=False)
    transact(world.log, 6, 0, 0, 2)
    world.owner.round()
    send(world.log, batch(1))  # not committed
    async with world.running() as follower:
        assert await follower.bases(isolation=COMMITTED) == [0, 3, 4]
        answer = await follower.fetch(3, isolation=COMMITTED)
        assert (answer.high_watermark, answer.last_stable_offset) == (7, 5)
        assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()] == [(5, 3)]
        end(world.log, 6, 0, commit=True)
        world.owner.round()
        assert await follower.bases(5, isolation=COMMITTED) == [5, 7, 8]


async def test_a_fetch_that_waits_at_a_follower_returns_when_records_come() -> None:
    """KIP-392: fetches of consumers wait at followers, too."""
    world = World()
    async with world.running() as follower:
        await follower.bases()
        found: list[Any] = []
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                found.append(await follower.fetch(3, max_wait_ms=15_000))

            nursery.start_soon(wait)
            await trio.sleep(0.05)
            began = trio.current_time()
            world.write(2)
        assert bases(found[0]) == [3]
        assert trio.current_time() - began < 5


async def test_a_follower_looks_again_before_it_misses_an_offset() -> None:
    """KIP-392, case 2: OFFSET_NOT_AVAILABLE for what only the leader may have; never OFFSET_OUT_OF_RANGE."""
    world = World()
    async with world.running() as follower:
        await follower.bases()
        world.write(2)
        assert (await follower.fetch(5)).error_code == ErrorCode.NONE
        assert (await follower.fetch(6)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE


async def test_a_follower_knows_what_the_owner_has_deleted() -> None:
    """KIP-392, case 3: an offset below the log's start is OFFSET_OUT_OF_RANGE."""
    world = World()
    world.write(2)
    async with world.running() as follower:
        await follower.bases()
        world.owner.writer.change(
            lambda identity: world.owner.engine.raise_start(identity, [(world.log.segments.log_id, 3)])
        )
        await trio.sleep(0.3)
        answer = await follower.fetch(0)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await follower.bases(3) == [3]


@pytest.mark.parametrize(
    ("off", "error"), [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (0, ErrorCode.NONE)]
)
async def test_leader_epochs_are_compared_as_by_leaders(off: int, error: ErrorCode) -> None:
    """KIP-320 and KIP-392: also before the log was opened, which a stale consumer must not cause."""
    world = World()
    epoch = world.owner.epoch + off
    async with world.running() as follower:
        answer = await follower.fetch(current_leader_epoch=epoch)
        assert answer.error_code == error
        assert len(follower.followed.logs()) == (not error)
        await follower.bases()
        answer = await follower.fetch(current_leader_epoch=epoch)
        assert answer.error_code == error
        if error == ErrorCode.FENCED_LEADER_EPOCH:
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, world.owner.epoch)


async def test_other_brokers_and_old_clients_are_sent_to_the_leader() -> None:
    """KIP-392: followers serve consumers only, since Fetch v11."""
    world = World()
    async with world.running() as follower:
        assert (await follower.fetch(version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not follower.followed.logs()


async def test_a_follower_without_a_database_sends_consumers_to_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-392: a replica that is not in sync serves no consumer. Here that is so one lease after the last look."""
    world = World()
    async with world.running() as follower:
        await follower.bases()

        def lost(method: str) -> None:
            raise StoreUnavailable(method)

        follower.engine.before = lost  # type: ignore[attr-defined]
        assert (await follower.fetch()).error_code == ErrorCode.NONE
        monkeypatch.setattr(follower.followed, "_lease_s", 0.1)
        await trio.sleep(0.2)
        assert (await follower.fetch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        monkeypatch.undo()
        follower.engine.before = lambda method: None  # type: ignore[attr-defined]
        assert await follower.bases() == [0]


@pytest.mark.parametrize("inline_bytes", [1 << 14, 0])
async def test_rows_that_vanished_are_found_again(inline_bytes: int) -> None:
    """KIP-392 with shared stores: the owner merged the rows, so a fetch that waits for them gets the merged ones."""
    world = World(inline_bytes)
    for _ in range(5):
        world.write(1)
    async with world.running() as follower:
        await follower.fetch(8)
        before = follower.followed.logs()
        await growth_of(world.owner, world.log).merge()
        collect(world.owner.engine, world.owner.row_bytes)
        assert await follower.bases() == [0, 3, 4, 5, 6, 7]
        assert follower.followed.logs() != before


async def test_a_row_that_is_damaged_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-392 with shared stores: the log is opened anew once, since the row might have been replaced."""
    monkeypatch.setattr("fencepost.broker.cluster.reading.byte_cache.RETRY_SECONDS", 0.05)
    world = World(inline_bytes=0)
    world.stores.objects.clear()
    async with world.running() as follower:
        answer = await follower.fetch(max_wait_ms=10_000)
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE


async def test_a_follower_that_is_late_reads_merged_rows() -> None:
    """KIP-392 with shared stores: what was merged before it was followed has no heads to replay."""
    world = World()
    async with world.running() as follower:
        await follower.bases()
        transact(world.log, 5, 0, 0)
        for _ in range(5):
            world.write(1)
        await growth_of(world.owner, world.log).merge()
        assert await follower.bases(3) == [3, 4, 5, 6, 7, 8]
        answer = await follower.fetch(3, isolation=COMMITTED)
        assert (answer.last_stable_offset, answer.high_watermark, bases(answer)) == (3, 9, [])


async def test_a_log_is_closed_when_no_consumer_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-392 with shared stores: following costs statements of the database."""
    world = World()
    async with world.running() as follower:
        await follower.bases()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(follower.fetch, 3, max_wait_ms=700))
            await trio.sleep(0.1)
            monkeypatch.setattr("fencepost.broker.cluster.serving.followed_logs.IDLE_SECONDS", 0.2)
            await trio.sleep(0.4)
            assert len(follower.followed.logs()) == 1, "a fetch that waits uses it"
        while follower.followed.logs():  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_a_log_is_closed_when_this_broker_leads_it_or_its_topic_is_deleted() -> None:
    """KIP-392: the fetches that wait get the error of a moved partition, and consumers look for it."""
    for deleted in (True, False):
        world = World()
        async with world.running() as follower:
            await follower.bases()
            answers: list[Any] = []
            async with trio.open_nursery() as nursery:

                async def wait() -> None:
                    answers.append(await follower.fetch(3, max_wait_ms=15_000))  # noqa: B023

                nursery.start_soon(wait)
                await trio.sleep(0.05)
                if deleted:
                    follower.metadata.image.topics_by_name.clear()
                else:
                    follower.ownership.begin([slot._replace(broker=ME) for slot in follower.ownership.slots])
            assert answers[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert not follower.followed.logs()


async def test_a_follower_follows_so_many_logs_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-392 with shared stores: consumers read the others from their leaders."""
    monkeypatch.setattr("fencepost.broker.cluster.serving.followed_logs.LOGS_MAX", 2)
    world = World()
    async with world.running() as follower:
        errors = [(await follower.fetch(0, TopicPartition(TP.topic, number))).error_code for number in range(3)]
        assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_a_partition_without_records_is_followed_from_its_beginning() -> None:
    """KIP-392: the database has nothing about it before its first record."""
    world = World()
    other = TopicPartition(TP.topic, 1)
    async with world.running() as follower:
        answer = await follower.fetch(0, other)
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 0)
        log: PartitionLog = opened(world.owner, other)
        send(log, batch(2))
        world.owner.round()
        assert await follower.bases(0, other) == [0]
