"""Garbage collection next to brokers that are paused at any step: every committed row keeps its bytes."""

import random
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
import trio

from fencepost.broker.cluster.engine import ClaimLost, Placement, StoreUnavailable
from fencepost.broker.cluster.objects.claims import CLAIM_IDLE_MS, ClaimPool
from fencepost.broker.cluster.objects.gc import PAGE, Collector, sweep
from fencepost.broker.cluster.objects.object_store import ObjectMissing, Objects, open_objects
from fencepost.broker.log.partition import AppendOrigin
from fencepost.broker.log.storage.store import Bytes
from tests.kit.engine_worlds import Broker, SimWorld, append, joined, row
from tests.kit.examples import examples
from tests.kit.garbage import collect
from tests.kit.growing import growth_of, opened
from tests.kit.shared_store import Stores
from tests.kit.sim_engine import SimEngine
from tests.kit.sim_tables import ObjectState
from tests.unit.log.kit import NOW_MS, batch

HOUR_MS = 60 * 60 * 1000
LOG = 7


class Shelf:
    """A `Backend` in a dictionary; `before` is called first by every method."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.before: Callable[[str], None] = lambda method: None

    def write(self, name: str, parts: Collection[Bytes], replace: bool = False) -> None:
        self.before("write")
        if name in self.held and not replace:
            raise FileExistsError(name)
        self.held[name] = b"".join(parts)

    def read(self, name: str, position: int, size: int) -> bytes:
        if name not in self.held:
            raise FileNotFoundError(name)
        return self.held[name][position : position + size]

    def remove(self, names: Collection[str]) -> None:
        self.before("remove")
        for name in names:
            self.held.pop(name, None)

    def names(self) -> Iterator[str]:
        self.before("names")
        yield from list(self.held)


class Place:
    """A database, a store, and brokers with one log each."""

    def __init__(self) -> None:
        self.world = SimWorld()
        self.shelf = Shelf()
        self.objects = Objects(self.shelf, "shelf")
        self.written: dict[tuple[int, int], bytes] = {}
        """What was committed, by log and offset."""

    def missing(self) -> list[tuple[int, int]]:
        """Committed rows whose bytes are gone or wrong."""
        engine, lost = self.world.engine(), []
        for head in engine.heads():
            for found in engine.rows(head.log, head.start, head.next):
                place = found.placement
                try:
                    data = self.objects.get(place.object_id, place.position, place.size_bytes)
                except ObjectMissing:
                    data = b""
                if data != self.written[head.log, found.base]:
                    lost.append((head.log, found.base))
        return lost

    def writes(self, broker: Broker, log: int, count: int) -> Iterator[None]:
        """The steps of a broker that writes `count` rows: it may be paused at every `yield`."""
        pool, seq = ClaimPool(broker.engine, now=lambda: self.world.database.now_ms() / 1000), 0
        for number in range(count):
            while True:
                object_id, data = pool.take(), b"%d of %d" % (number, log)
                yield
                self.objects.put(object_id, [data])
                yield
                try:
                    seq += 1
                    used = row(object_id=object_id)._replace(placement=Placement(object_id, 0, len(data)))
                    (base,) = broker.commit(seq, append(log, number, used), objects=[object_id])
                except ClaimLost:
                    seq -= 1
                    continue
                self.written[log, base] = data
                break
            yield

    def put_row(self, broker: Broker, seq: int) -> int:
        """Write one row to LOG; return its object."""
        object_id = broker.engine.claim(1)[0]
        self.objects.put(object_id, [b"12345"])
        (base,) = broker.commit(seq, append(LOG, seq - 1, row(object_id=object_id)), objects=[object_id])
        self.written[LOG, base] = b"12345"
        return object_id


def test_a_broker_that_was_paused_before_its_commit_writes_the_object_again() -> None:
    place = Place()
    broker = joined(place.world, 1)
    steps = place.writes(broker, LOG, 1)
    next(steps)
    next(steps)
    assert list(place.objects.ids()) == [1]
    place.world.age(2 * HOUR_MS)
    assert collect(place.world.engine(), place.objects) == 100
    assert list(place.objects.ids()) == []
    assert list(steps) == [None, None, None]
    assert [found.placement.object_id for found in broker.engine.rows(LOG, 0, 1)] == [101]
    assert place.missing() == []


def test_a_put_that_completes_after_its_claim_was_forgotten_is_swept() -> None:
    place = Place()
    steps = place.writes(joined(place.world, 1), LOG, 1)
    next(steps)
    place.world.age(2 * HOUR_MS)
    collect(place.world.engine(), place.objects)
    next(steps)
    assert list(place.objects.ids()) == [1]
    assert collect(place.world.engine(), place.objects) == 0
    assert sum(sweep(place.world.engine(), place.objects)) == 1
    assert list(place.objects.ids()) == []
    list(steps)
    assert place.missing() == []


def test_young_claims_and_live_objects_stay() -> None:
    place = Place()
    broker = joined(place.world, 1)
    place.put_row(broker, 1)
    place.world.age(10 * HOUR_MS)
    young = broker.engine.claim(1)[0]
    place.objects.put(young, [b"x"])
    assert collect(place.world.engine(), place.objects) == 0
    assert sum(sweep(place.world.engine(), place.objects)) == 0
    assert set(place.objects.ids()) == {1, young}
    place.world.age(CLAIM_IDLE_MS)
    assert collect(place.world.engine(), place.objects) == 1
    assert place.missing() == []


def test_objects_whose_rows_are_deleted_are_deleted() -> None:
    place = Place()
    broker = joined(place.world, 1)
    for seq in range(1, 6):
        place.put_row(broker, seq)
    broker.engine.raise_start(broker.identity, [(LOG, 3)])
    assert collect(place.world.engine(), place.objects) == 3
    assert set(place.objects.ids()) == {4, 5}
    assert place.missing() == []


def test_more_garbage_than_one_page() -> None:
    place = Place()
    engine = place.world.engine()
    for object_id in engine.claim(2500):
        place.objects.put(object_id, [b"x"])
    place.world.age(HOUR_MS)
    assert collect(engine, place.objects) == 2500
    assert place.shelf.held == {}


def test_more_orphans_than_one_page() -> None:
    place = Place()
    engine = place.world.engine()
    kept = place.put_row(joined(place.world, 1), 1)
    engine.claim(3000)
    place.world.database.objects = {kept: place.world.database.objects[kept]}
    for object_id in range(2, 2502):
        place.objects.put(object_id, [b"x"])
    assert sum(sweep(engine, place.objects)) == 2500
    assert list(place.objects.ids()) == [kept]


def test_objects_that_another_life_of_the_database_claimed_are_swept() -> None:
    """The database is a restored backup that has taken the objects over: `fencepost store take-over`."""
    place = Place()
    place.objects.put(1 << 60, [b"x"])
    assert sum(sweep(place.world.engine(), place.objects)) == 1
    assert list(place.objects.ids()) == []


def test_a_failed_delete_is_repeated_by_the_next_run(tmp_path: Path) -> None:
    place = Place()
    engine = place.world.engine()
    place.objects.put(engine.claim(1)[0], [b"x"])
    place.world.age(HOUR_MS)

    def down(method: str) -> None:
        raise StoreUnavailable("the store is down")

    place.shelf.before = down
    with pytest.raises(StoreUnavailable):
        collect(engine, place.objects)
    place.shelf.before = lambda method: None
    assert collect(engine, place.objects) == 1
    assert place.shelf.held == {}


class ByAgeAlone(SimEngine):
    """The fault that claims exist against: old claims are deleted without a mark."""

    def doomed(self, idle_ms: int, limit: int = 1000) -> list[int]:
        found, objects = super().doomed(idle_ms, limit), self.database.objects
        for number in found:
            if objects[number].live == 0:
                objects[number] = objects[number]._replace(state=ObjectState.CLAIMED)
        return found

    def forget(self, objects: Collection[int]) -> None:
        for number in objects:
            if number in self.database.objects and self.database.objects[number].live == 0:
                del self.database.objects[number]


def interleave(seed: int, collector: type[SimEngine]) -> Place:
    """Three writers, two collectors that another's steps interrupt at each of their calls, and hours that pass."""
    chance, place = random.Random(seed), Place()
    writers = {number: place.writes(joined(place.world, number), number, 4) for number in range(1, 4)}

    def others(method: str) -> None:
        if method == "write":
            return  # a writer's own step
        for _ in range(chance.randrange(4)):
            number = chance.choice(list(writers or [0]))
            if number and next(writers[number], "done") == "done":
                del writers[number]
        if chance.random() < 0.3:
            place.world.age(chance.choice([1000, HOUR_MS // 4, HOUR_MS + 1]))

    engine = collector(place.world.database)
    engine.before = engine.after = place.shelf.before = others
    while writers:
        others("")
        chance.choice([collect, sweep])(engine, place.objects)
    return place


def test_no_interleaving_deletes_the_bytes_of_a_committed_row() -> None:
    for seed in range(examples(200)):
        place = interleave(seed, SimEngine)
        assert len(place.written) == 12
        assert place.missing() == [], f"seed {seed}"
        place.shelf.before = lambda method: None
        place.world.age(2 * HOUR_MS)
        collect(place.world.engine(), place.objects)
        list(sweep(place.world.engine(), place.objects))
        live = {row.placement.object_id for log in (1, 2, 3) for row in place.world.engine().rows(log, 0, 99)}
        assert set(place.objects.ids()) == live, f"seed {seed}: and nothing else is left"


def test_the_check_finds_a_collector_that_goes_by_age_alone() -> None:
    assert any(interleave(seed, ByAgeAlone).missing() for seed in range(50))


def test_a_running_broker_deletes_an_object_one_step_after_it_marked_it() -> None:
    """Reads that began before the rows were merged still find their bytes; a failed step is repeated."""
    place = Place()
    broker = joined(place.world, 1)
    for seq in (1, 2):
        place.put_row(broker, seq)
    collector = Collector(place.objects)
    collector.step(broker.engine)
    collector.step(broker.engine)
    assert place.missing() == []
    broker.engine.raise_start(broker.identity, [(LOG, 1)])
    collector.step(broker.engine)
    assert len(place.shelf.held) == 2, "only marked"

    def unavailable(method: str) -> None:
        raise StoreUnavailable("the bucket is away")

    place.shelf.before = unavailable
    with pytest.raises(StoreUnavailable):
        collector.step(broker.engine)
    place.shelf.before = lambda method: None
    collector.step(broker.engine)
    assert (len(place.shelf.held), collector.deleted, place.missing()) == (1, 1, [])


def test_the_active_broker_sweeps_step_by_step() -> None:
    """It begins before a whole interval has passed, and counts what it deletes."""
    stores = Stores()
    broker = stores.broker(1, inline_bytes=0)
    log = opened(broker)
    late = broker.engine.claim(PAGE + 1)
    broker.engine.doomed(0, 10 * PAGE)
    broker.engine.forget(late)
    log.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
    broker.round()
    (live,) = stores.objects
    stores.objects.update(dict.fromkeys(late, b"put too late"))
    growth = growth_of(broker, log, cluster_sweep_interval_ms=1000)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(growth.run)
            for _ in range(1000):
                await trio.sleep(0.01)
                if growth.counters.swept_objects == len(late):
                    break
            nursery.cancel_scope.cancel()

    trio.run(run)
    assert list(stores.objects) == [live]


def test_a_sweep_continues_after_the_object_store_was_unavailable() -> None:
    """The broker goes on, and the next sweep deletes the rest."""
    stores = Stores()
    broker = stores.broker(1)
    growth = growth_of(broker)
    (late,) = broker.engine.claim(1)
    broker.engine.doomed(0)
    broker.engine.forget([late])
    stores.objects[late] = b"put too late"

    def away(object_ids: Collection[int]) -> None:
        raise StoreUnavailable("away")

    broker.row_bytes.delete = away  # type: ignore[method-assign]
    trio.run(growth.sweep)
    assert (growth.counters.swept_objects, list(stores.objects)) == (0, [late])
    del broker.row_bytes.delete
    trio.run(growth.sweep)
    assert (growth.counters.swept_objects, list(stores.objects)) == (1, [])


def test_threads_may_take_turns_in_a_list_of_a_bucket() -> None:
    """A sweep continues in any thread."""
    objects = open_objects("memory://", "cluster")
    engine = SimWorld().engine()
    for object_id in (late := engine.claim(PAGE + 500)):
        objects.put(object_id, [b"1"])
    engine.doomed(0, 10 * PAGE)
    engine.forget(late)
    steps, found = sweep(engine, objects), list[int]()
    while len(found) < 2:
        thread = threading.Thread(target=lambda: found.append(next(steps)))
        thread.start()
        thread.join()
    assert found == [PAGE, 500]
    assert list(objects.ids()) == []
