"""Claimed ids: in blocks, each once, none that is old."""

import threading
from pathlib import Path

import pytest

from fencepost.broker.cluster.claims import BLOCK, CLAIM_IDLE_MS, FRESH_PART, ClaimPool
from fencepost.broker.cluster.engine import Placement, StoreUnavailable
from fencepost.broker.cluster.objects import ObjectMissing, open_objects
from fencepost.broker.cluster.row_objects import RowObjects


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
