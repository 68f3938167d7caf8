"""Whenever the power goes or the process dies, the next start finds what was promised, and a state that replay proves.

Rules: L2 (recovery), P9 (producers with their windows of five batches), I1 (LSO), I2 and I3 (aborted transactions), L5
(compaction), and the promise of `fsync` durability: what lies below a high watermark is never lost.
"""

import pytest

from fencepost.broker.log.commit import Durability
from tests.simulation.checks import check
from tests.simulation.long import LONG
from tests.simulation.nodes import nothing, torn_at
from tests.simulation.power_cut import every_cut, one_cut_each, play
from tests.simulation.script import ORDERS, WIDE
from tests.simulation.world import DATA, Promises, World


@pytest.mark.timeout(7200 if LONG else 120)
@pytest.mark.parametrize(("durability", "step"), [("fsync", 7), ("os", 23)])
def test_cut_at_every_call_of_the_history(durability: Durability, step: int):
    """In `fsync` all that was acknowledged survives any loss of what was not synced; in `os` it survives a kill."""
    assert play(durability, every_cut(20) if LONG else one_cut_each(step)) > (5000 if LONG else 40)


def last_batches() -> tuple[World, Promises, list[int]]:
    """A log with an open transaction, whose last three batches are not durable: an abort, then two of producers."""
    world = World("fsync")
    world.create(ORDERS, b"orders".ljust(16), WIDE)
    for _ in range(6):
        world.append(ORDERS, 100, 1, 20, transactional=False)
    world.append(ORDERS, 200, 2, 60, transactional=True)
    world.append(ORDERS, 201, 1, 60, transactional=True)
    world.commit([ORDERS])
    before = world.promises()
    world.mark(ORDERS, 200, commit=False, version=1)
    world.append(ORDERS, 201, 1, 40, transactional=True)
    world.append(ORDERS, 100, 2, 10, transactional=False)
    sizes = [len(batch.data) for batch in world.partitions[ORDERS].batches]
    return world, before, sizes


@pytest.mark.parametrize("zeros", [False, True])
def test_cut_at_every_byte_of_the_last_three_batches(zeros: bool):
    """Row L2: the log ends at the last whole batch, and the producers' state with it (P9, I1 to I3)."""
    world, before, sizes = last_batches()
    after = world.promises()
    log_bytes = len(world.disk.file(f"{DATA}/{ORDERS}/00000000000000000000.log").data)
    assert log_bytes == sum(sizes)
    ends = set()
    for size_bytes in range(log_bytes - sum(sizes[-3:]), log_bytes + 1):
        disk = world.disk.power_cut(torn_at(size_bytes, zeros=zeros))
        check(disk, "fsync", before, after, power_was_cut=True)
        ends.add(len(disk.file(f"{DATA}/{ORDERS}/00000000000000000000.log").data))
    assert ends == {sum(sizes[: len(sizes) - lost]) for lost in range(4)}


def test_what_a_restart_showed_to_readers_outlives_the_next_power_cut():
    """A killed process leaves bytes in the page cache; they are durable before the high watermark covers them."""
    world = last_batches()[0]
    world.crash()
    log = world.log(ORDERS)
    assert log is not None
    assert log.high_watermark == log.log_end_offset == world.promises()[ORDERS].end
    world.look()
    check(world.disk.power_cut(nothing), "fsync", world.promises(), world.promises(), power_was_cut=True)


def test_a_new_log_is_not_opened_by_the_offsets_of_one_that_had_its_name():
    """A recovery point or log start of the deleted topic would hide or believe what the new one holds (L2, L3)."""
    world = World("fsync")
    world.create(ORDERS, b"first".ljust(16), WIDE)
    for _ in range(10):
        world.append(ORDERS, -1, 2, 50, transactional=False)
    world.commit([ORDERS])
    world.delete_records(ORDERS, 0.5)
    world.housekeep(1000)
    world.directory.write_checkpoints()
    world.delete(ORDERS)
    world.create(ORDERS, b"second".ljust(16), WIDE)
    world.append(ORDERS, -1, 1, 50, transactional=False)
    assert world.partitions[ORDERS].start == 0
    world.commit([ORDERS])
    check(world.disk.power_cut(nothing), "fsync", world.promises(), world.promises(), power_was_cut=True)
