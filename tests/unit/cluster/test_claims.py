"""Claimed ids: in blocks, each once, none that is old."""

import threading
from pathlib import Path

import pytest

from fencepost.broker.cluster.engine import Placement, StoreUnavailable
from fencepost.broker.cluster.objects.claims import BLOCK, CLAIM_IDLE_MS, FRESH_PART, ID_BITS, ClaimPool, random_ids
from fencepost.broker.cluster.objects.object_store import ObjectMissing, open_objects
from fencepost.broker.cluster.objects.row_objects import RowObjects
from fencepost.broker.log.partition import AppendOrigin
from tests.kit.growing import opened
from tests.kit.shared_store import Stores
from tests.kit.sim_tables import ObjectState
from tests.unit.log.kit import NOW_MS, batch


class Database:
    """Counts claims."""

    def __init__(self) -> None:
        self.claims = 0

    def claim(self, count: int) -> list[int]:
        self.claims += 1
        return [self.claims * 1000 + number for number in range(count)]


def test_ids_are_claimed_in_blocks_and_handed_out_once() -> None:
    database = Database()
    pool = ClaimPool(database)
    taken = [pool.take() for _ in range(2 * BLOCK)]
    assert taken == [*range(1000, 1000 + BLOCK), *range(2000, 2000 + BLOCK)]
    assert database.claims == 2


@pytest.mark.parametrize("max_age_ms", [CLAIM_IDLE_MS, 60_000, 1000])
def test_an_old_block_is_dropped(max_age_ms: int) -> None:
    """Old is relative to the age at which garbage collection deletes a claim."""
    now = 50.0
    pool = ClaimPool(Database(), max_age_ms, lambda: now)
    assert pool.take() == 1000
    now += 0.9 * max_age_ms / 1000 / FRESH_PART
    assert pool.take() == 1001
    now += 0.2 * max_age_ms / 1000 / FRESH_PART
    assert pool.take() == 2000
    assert FRESH_PART > 4


def test_the_age_counts_from_before_the_claim() -> None:
    """A broker that is paused while the database answers must not hand the ids out later."""
    now = 0.0

    class SlowDatabase(Database):
        def claim(self, count: int) -> list[int]:
            nonlocal now
            now += CLAIM_IDLE_MS / 1000 / FRESH_PART + 1
            return super().claim(count)

    pool = ClaimPool(SlowDatabase(), now=lambda: now)
    pool.take()
    assert pool.take() == 2000


def test_threads_never_share_an_id() -> None:
    pool, taken = ClaimPool(Database()), list[int]()

    def take() -> None:
        taken.extend(pool.take() for _ in range(500))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == len(taken) == 4000


def test_every_object_of_rows_has_its_own_claimed_id_also_after_an_error(tmp_path: Path) -> None:
    objects = open_objects(f"file://{tmp_path}", "cluster")
    rows = RowObjects(objects, ClaimPool(Database()))
    folder = tmp_path / "cluster"
    assert rows.put([b"first"]) == 1000
    folder.rename(tmp_path / "away")
    with pytest.raises(StoreUnavailable):
        rows.put([b"second"])
    (tmp_path / "away").rename(folder)
    assert rows.put([b"third", b"fourth"]) == 1002
    assert rows.read(Placement(1002, 5, 6)) == b"fourth"
    with pytest.raises(ObjectMissing):
        rows.read(Placement(1001, 0, 1))


def test_random_ids_are_those_of_objects_and_no_two_blocks_share_one() -> None:
    """The database takes them as bigint; 0 stands for a row that has its bytes itself."""
    firsts = [random_ids(BLOCK) for _ in range(1000)]
    assert all(0 < first < first + BLOCK < 1 << ID_BITS for first in firsts)
    assert len({number for first in firsts for number in range(first, first + BLOCK)}) == 1000 * BLOCK


def test_a_commit_whose_claim_the_database_lost_gives_the_whole_block_up(tmp_path: Path) -> None:
    """Each id of the block would fail, after a put of all bytes."""
    stores = Stores()
    broker = stores.broker(1, inline_bytes=0)
    objects = open_objects(f"file://{tmp_path}", "cluster")
    broker.row_bytes = broker.rounds.row_bytes = RowObjects(objects, ClaimPool(broker.engine))  # type: ignore[assignment]
    log = opened(broker)
    log.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
    broker.round()
    held = stores.database.objects
    for number in [number for number, row in held.items() if row.state == ObjectState.CLAIMED]:
        del held[number]  # the database went back to an instant before this claim
    for _ in range(3):
        log.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    assert objects.counters.puts == 5, "four rounds, and one that was put again"
    assert [row.placement.object_id for row in broker.engine.rows(log.segments.log_id, 0, 9)] == [1, 101, 102, 103]
