"""Logs that are followed while their owner writes and merges (KIP-392), and what clients are told about replicas."""

import random

import pytest
import trio

from fencepost.broker.cluster.engine import Member
from fencepost.broker.cluster.ownership import Ownership
from fencepost.broker.cluster.reading.loading import load_heads
from fencepost.broker.cluster.reading.row_reading import foreign_rows
from fencepost.broker.cluster.serving.followed_log import FollowedRows
from fencepost.broker.cluster.serving.members import peers_of
from fencepost.broker.cluster.serving.replicas import Replicas
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.peers.peer import Peer
from fencepost.coordinator.metadata.image import PartitionImage, TopicImage
from tests.kit.followers import Following
from tests.kit.growing import Writers, aborted, content, growth_of, opened
from tests.kit.shared_store import TOPIC_ID, Stores
from tests.unit.log.kit import TP, batch, send

TOPIC = TopicImage("events", TOPIC_ID, (PartitionImage((), (), leader=-1, leader_epoch=0),) * 2, {})


async def caught_up(follower: Following, log: PartitionLog) -> None:
    """Return when the follower has all that is committed."""
    while (await follower.fetch(log.high_watermark)).error_code:
        pass


@pytest.mark.parametrize("seed", range(10))
async def test_a_follower_has_what_its_owner_has(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, aborted transactions and bounds, whatever was merged before or after it was followed."""
    monkeypatch.setattr("fencepost.broker.cluster.serving.followed_logs.LOOK_SECONDS", 0.001)
    monkeypatch.setattr("fencepost.broker.cluster.reading.byte_cache.RETRY_SECONDS", 0.01)
    random_ = random.Random(seed)
    stores = Stores()
    owner = stores.broker(1, random_.choice((0, 400, 1 << 14)))
    log, writers = opened(owner), Writers(random_)
    growth, follower = growth_of(owner, log), Following(stores, owner)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.run)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(50):
            for _ in range(60):
                for _ in range(random_.randint(1, 3)):
                    writers.step(log)
                owner.round()
                match random_.randrange(6):
                    case 0:
                        await growth.merge()
                    case 1:
                        await caught_up(follower, log)
                        assert await follower.content() == content(owner, log)
                    case 2:
                        await trio.sleep(random_.choice((0, 0.002)))
            await caught_up(follower, log)
            assert await follower.content() == content(owner, log)
            (followed,) = follower.followed.logs()
            assert list(followed.producers.entries()) == list(log.producers.entries())
        nursery.cancel_scope.cancel()
    assert followed.last_stable_offset == log.last_stable_offset
    assert aborted(followed) == aborted(log)


async def test_rows_that_are_merged_while_a_log_is_loaded_do_not_fit_together() -> None:
    """Else the state would lack what is in them: a reader of committed records would see an open transaction."""
    stores = Stores()
    owner = stores.broker(1)
    log = opened(owner)
    send(log, batch(2, 5, 0, 0, transactional=True))
    owner.round()
    for _ in range(4):
        send(log, batch(1))
        owner.round()
    before = owner.engine.snapshots
    heads = owner.engine.heads_of([log.segments.log_id])
    (whole,) = load_heads(owner.engine, owner.row_bytes, heads, whole=())
    assert whole.is_consistent
    empty = {kind: before([log.segments.log_id], kind) for kind in ("producers", "epochs", "cleaned")}
    await growth_of(owner, log).merge()
    owner.engine.snapshots = lambda logs, kind: empty[kind]
    (torn,) = load_heads(owner.engine, owner.row_bytes, heads, whole=())
    assert not torn.is_consistent
    owner.engine.snapshots = before
    (whole,) = load_heads(owner.engine, owner.row_bytes, heads, whole=())
    assert whole.is_consistent
    assert whole.producers.first_undecided_offset() == 0


async def test_only_the_next_runs_are_followed() -> None:
    """A merged row has no heads, and may lack records that compaction removed."""
    stores = Stores()
    owner = stores.broker(1)
    log = opened(owner)
    for _ in range(4):
        send(log, batch(1))
        owner.round()
    follower = Following(stores, owner)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.run)
        await trio.testing.wait_all_tasks_blocked()
        await follower.fetch(4)
        nursery.cancel_scope.cancel()
    rows = follower.followed.logs()[0].segments
    assert isinstance(rows, FollowedRows)
    for _ in range(4):
        send(log, batch(1))
        owner.round()
    number = log.segments.log_id
    found = foreign_rows(owner.engine, owner.row_bytes, number, 4, 8)
    assert rows.are_next(found)
    assert rows.are_next(found[:1])
    assert not rows.are_next(found[1:])
    await growth_of(owner, log).merge()
    assert not rows.are_next(foreign_rows(owner.engine, owner.row_bytes, number, 4, 8))


def test_replicas_are_the_owner_and_then_all_brokers_with_racks() -> None:
    """KIP-392: clients read only from brokers that Metadata names as replicas."""
    stores = Stores()
    stores.broker(2)
    ownership = Ownership(1, stores.world.engine().slots())
    replicas = Replicas(ownership, "a", True)
    replicas.see([Peer(4, "c", {}), Peer(3, None, {}), Peer(2, "b", {}), Peer(5, "c", {}, serves=False)])
    (first, second) = replicas.led(TOPIC).assignment
    assert first.replicas == first.isr == second.isr == (2, 1, 4)
    assert first.leader == 2
    version = ownership.version
    replicas.see([Peer(4, "c", {}), Peer(2, "b", {})])
    assert ownership.version == version, "nothing has to be encoded again"
    replicas.see([Peer(2, "b", {})])
    assert ownership.version == version + 1
    assert replicas.led(TOPIC).assignment[0].isr == (2, 1)


def test_without_a_selector_the_owner_is_the_only_replica() -> None:
    """As before KIP-392."""
    stores = Stores()
    stores.broker(2)
    replicas = Replicas(Ownership(1, stores.world.engine().slots()), "a", False)
    replicas.see([Peer(2, "b", {})])
    assert replicas.led(TOPIC).assignment[0].isr == (2,)
    assert replicas.closest(TOPIC_ID, TP.partition, "b", "PLAINTEXT") is None


@pytest.mark.parametrize(
    ("idle_ms", "ready", "serves"), [(0, True, True), (999, True, True), (1001, True, False), (0, False, False)]
)
def test_consumers_are_sent_to_ready_brokers_with_a_lease(idle_ms: int, ready: bool, serves: bool) -> None:
    """KIP-392: a replica that is not in sync is not chosen. Metadata lists it somewhat longer."""
    member = Member(2, 1, idle_ms, False, '{"rack": "b", "listeners": {}}', ready=ready)
    assert peers_of([member], 1, 1000)[2].serves == serves
