"""Whenever the power goes or the process dies, the next start finds what was promised, and a state that replay proves.

Rules: L2 (recovery), P9 (producers with their windows of five batches), I1 (LSO), I2 and I3 (aborted transactions), L5
(compaction), and the promise of `fsync` durability: what lies below a high watermark is never lost.
"""

import pytest

from fencepost.broker.log.durability.flusher import Durability
from tests.kit.disk_nodes import Fate, data_only, everything, names_only, nothing, torn_at
from tests.kit.sim_disk import SimDisk
from tests.simulation.checks import check, reopen
from tests.simulation.long import LONG
from tests.simulation.power_cut import CHANGES, every_cut, one_cut_each, play
from tests.simulation.script import ORDERS, SMALL, WIDE
from tests.simulation.world import DATA, Promises, World


@pytest.mark.timeout(7200 if LONG else 600)
@pytest.mark.parametrize(("durability", "step"), [("fsync", 11), ("os", 29)])
def test_cut_at_every_call_of_the_history(durability: Durability, step: int):
    """In `fsync` all that was acknowledged survives any loss of what was not synced; in `os` it survives a kill."""
    assert play(durability, every_cut(20) if LONG else one_cut_each(step)) > (5000 if LONG else 40)


def last_batches(reserve: bool = False) -> tuple[World, Promises, list[int]]:
    """A log with an open transaction, whose last three batches are not durable: an abort, then two of producers."""
    world = World("fsync")
    world.reserve = reserve
    world.staging = False  # what is taken back takes the reserve with it
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


@pytest.mark.parametrize(("zeros", "reserve"), [(False, False), (True, False), (False, True)])
def test_cut_at_every_byte_of_the_last_three_batches(zeros: bool, reserve: bool):
    """Row L2: the log ends at the last whole batch, and the producers' state with it (P9, I1 to I3).

    So it does where room was reserved behind the batches, of which what was not written stays zeros.
    """
    world, before, sizes = last_batches(reserve)
    after = world.promises()
    log_bytes = sum(sizes)
    file_bytes = len(world.disk.file(f"{DATA}/{ORDERS}/00000000000000000000.log").data)
    assert file_bytes > log_bytes + 100_000 if reserve else file_bytes == log_bytes
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


def rolled_world(batches: int) -> World:
    """A log of small segments, none of which is durable yet."""
    world = World("fsync")
    world.create(ORDERS, b"orders".ljust(16), SMALL)
    for number in range(batches):
        producer = 200 + number % 2
        world.append(ORDERS, producer, 1, 120, transactional=True)
        if number % 5 == 4:
            world.mark(ORDERS, producer, commit=False, version=1)
    return world


def test_a_log_ends_where_a_rolled_segment_lost_its_last_batch():
    """Row L2: a whole batch is missing at the end of a file, the next file is there; no checksum tells of it."""
    world = rolled_world(12)
    logs = sorted(name for name in world.disk.file_names(f"{DATA}/{ORDERS}") if name.endswith(".log"))
    assert len(logs) > 2
    kept = [batch for batch in world.partitions[ORDERS].batches if batch.base_offset < int(logs[1][:-4])]
    disk = world.disk.power_cut(everything)
    disk.file(f"{DATA}/{ORDERS}/{logs[0]}").truncate(sum(len(batch.data) for batch in kept[:-1]))
    before = {tp: promise._replace(high=0) for tp, promise in world.promises().items()}
    check(disk, "fsync", before, world.promises(), power_was_cut=True)
    log = reopen(disk, "fsync").create(ORDERS, b"orders".ljust(16), SMALL)
    assert log.log_end_offset == kept[-1].base_offset


def test_cut_while_many_segments_are_deleted():
    """Row P9: whichever segment the log begins with then, what producers did before it stands in its snapshot."""
    world = rolled_world(24)
    world.commit([ORDERS])
    for producer in (200, 201):
        world.mark(ORDERS, producer, commit=True, version=1)
    world.commit([ORDERS])
    before = world.promises()
    moments: list[SimDisk] = []
    world.disk.before_io = lambda kind, path: moments.append(world.disk.kill()) if kind in CHANGES else None
    world.delete_records(ORDERS, 0.9)
    world.do_chores()
    assert len(moments) > 24
    for disk in moments:
        check(disk.power_cut(names_only), "fsync", before, world.promises(), power_was_cut=True)


@pytest.mark.parametrize("fate", [nothing, names_only, data_only])
def test_cut_while_a_checkpoint_is_taken(fate: Fate):
    """Row I3: zeros at the end of an aborted index are no transaction of producer 0 at offset 0."""
    world = World("fsync")
    world.create(ORDERS, b"orders".ljust(16), WIDE)
    world.append(ORDERS, 100, 1, 50, transactional=False)
    world.checkpoint(ORDERS)
    world.append(ORDERS, 200, 1, 50, transactional=True)
    world.mark(ORDERS, 200, commit=False, version=1)
    world.append(ORDERS, 100, 1, 50, transactional=False)
    world.commit([ORDERS])
    before = world.promises()
    moments: list[SimDisk] = []
    world.disk.before_io = lambda kind, path: moments.append(world.disk.kill())
    world.checkpoint(ORDERS)
    for disk in moments:
        check(disk.power_cut(fate), "fsync", before, world.promises(), power_was_cut=True)
