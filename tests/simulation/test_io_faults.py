"""Whatever call to the disk fails, the log refuses with KAFKA_STORAGE_ERROR and gives readers what it gave before.

It goes on when the disk is well again. After a failed flush nothing is called durable that is not, not even by the next
process (row L2).
"""

from random import Random

import pytest

from fencepost.broker.log.durability.flusher import Durability
from fencepost.broker.log.storage import disk_file, staged
from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import Change, NameChange, Write, nothing
from tests.simulation.checks import check, check_readers
from tests.simulation.io_faults import every_case
from tests.simulation.long import LONG, every
from tests.simulation.script import ORDERS, SHORT, WIDE
from tests.simulation.world import ProcessEnds, World


@pytest.mark.timeout(7200 if LONG else 600)
@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize(
    ("kind", "step"), [("eio", 211), ("full", 59), ("full_half_way", 43), ("short", 43), ("failed_sync", 47)]
)
def test_fail_at_every_call_of_the_history(kind: str, step: int, durability: Durability):
    """Faults: EIO, ENOSPC with and without a half-written batch, short writes, and syncs that fail."""
    assert sum(1 for _ in every_case(kind, durability, every(step))) > 5


@pytest.mark.timeout(7200 if LONG else 600)
@pytest.mark.parametrize(("kind", "step"), [("eio", 311), ("full_half_way", 151), ("short", 151), ("failed_sync", 97)])
def test_fail_at_every_call_where_all_goes_in_pieces(kind: str, step: int, monkeypatch: pytest.MonkeyPatch):
    """As large batches and large flushes do (decision 44), here with batches of the usual size and tiny pieces."""
    monkeypatch.setattr(disk_file, "PIECE_BYTES", 50)
    monkeypatch.setattr(staged, "PIECE_BYTES", 50)
    monkeypatch.setattr(disk_file, "LARGE_BYTES", 60)
    assert sum(1 for _ in every_case(kind, "fsync", every(step))) > 5


def world_with_a_failed_flush() -> World:
    """Three batches; the flush of the third failed, and the process ended, as it should."""
    world = World("fsync")
    world.create(ORDERS, b"orders".ljust(16), WIDE)
    world.append(ORDERS, 100, 1, 50, transactional=False)
    world.append(ORDERS, 100, 1, 50, transactional=False)
    world.commit([ORDERS])
    world.append(ORDERS, 100, 1, 50, transactional=False)
    world.disk.faults.append(Fault(world.disk.io_count, kinds=("fdatasync",)))
    with pytest.raises(ProcessEnds):
        world.commit([ORDERS])
    world.disk.faults.clear()
    return world


def test_after_a_failed_flush_the_power_cut_takes_only_what_was_not_called_safe():
    world = world_with_a_failed_flush()
    assert world.promises()[ORDERS].high == 2
    check(world.disk.power_cut(nothing), "fsync", world.promises(), world.promises(), power_was_cut=True)


def test_the_process_after_a_failed_flush_does_not_believe_the_page_cache():
    """It finds the bytes in the cache, where they count as clean: its own flush would succeed and keep nothing."""
    world = world_with_a_failed_flush()
    world.crash()
    log = world.log(ORDERS)
    assert log is not None
    assert log.high_watermark == 3
    world.look()
    check(world.disk.power_cut(nothing), "fsync", world.promises(), world.promises(), power_was_cut=True)


def test_a_log_whose_flush_fails_while_it_is_opened_stays_shut_for_this_run():
    """A second try would find the pages clean, succeed, and show readers what the disk does not have."""
    world = World("fsync")
    world.create(ORDERS, b"orders".ljust(16), WIDE)
    world.append(ORDERS, 100, 1, 50, transactional=False)
    world.crash()
    world.disk.faults.append(Fault(world.disk.io_count, kinds=("fdatasync",)))
    assert world.log(ORDERS) is None
    world.disk.faults.clear()
    assert world.log(ORDERS) is None
    assert world.is_offline(ORDERS)
    world.crash()
    assert world.log(ORDERS) is not None


def test_a_topic_that_the_disk_did_not_let_go_of_is_not_found_in_a_new_one_of_its_name():
    """The directory of the deleted topic is still there: it is set aside, not taken over."""
    world = World("fsync")
    world.create(SHORT, b"first".ljust(16), WIDE)
    world.append(SHORT, -1, 3, 50, transactional=False)
    world.commit([SHORT])
    world.disk.faults.append(Fault(world.disk.io_count, kinds=("rename",)))
    world.delete(SHORT)
    world.disk.faults.clear()
    world.create(SHORT, b"second".ljust(16), WIDE)
    world.append(SHORT, -1, 1, 50, transactional=False)
    assert [batch.base_offset for batch in world.partitions[SHORT].batches] == [0]


def test_the_mark_of_a_clean_stop_does_not_come_back():
    """Row L2: the start that takes it away dies before that is durable; the next one writes, and then the power goes.

    With the mark in its place again the torn end would be believed, and the partition be offline.
    """
    world = World("os")
    world.create(ORDERS, b"orders".ljust(16), WIDE)
    world.append(ORDERS, 100, 1, 50, transactional=False)
    world.directory.close()

    def fail_once(kind: str, path: str) -> None:
        if kind == "fsync" and not world.disk.faults:
            world.disk.faults.append(Fault.once(world.disk.io_count))

    world.disk.before_io = fail_once
    world.directory = world.open()
    assert world.refused == 1, "the first start ended there, the second one went on"
    world.disk.before_io = None
    world.append(ORDERS, 100, 1, 50, transactional=False)

    def torn(change: Change | NameChange, is_last: bool, random: Random) -> Change | None:
        return Write(change.position, change.data[:-1]) if isinstance(change, Write) else None

    disk = world.disk.power_cut(torn)
    check(disk, "os", world.promises(), world.promises(), power_was_cut=True)


def test_an_append_whose_batch_is_written_can_not_fail_any_more():
    """The last entry of an index on a disk that cannot be read: refused, the batch would stand there all the same, and
    the next one get its offset.
    """
    world = World("os")
    world.create(ORDERS, b"orders".ljust(16), WIDE)
    for _ in range(12):
        world.append(ORDERS, 100, 1, 100, transactional=False)
    for producer in (200, 201):
        world.append(ORDERS, producer, 1, 50, transactional=True)
    world.mark(ORDERS, 200, commit=False, version=1)
    log = world.log(ORDERS)
    assert log is not None
    assert log.segments.flush_indexes()
    log.segments.close()
    fault = Fault(world.disk.io_count, kinds=("open", "pread", "size"), path_part="index")
    world.disk.faults.append(fault)
    for _ in range(12):
        world.append(ORDERS, 100, 1, 100, transactional=False)
    world.mark(ORDERS, 201, commit=False, version=1)
    assert world.refused == 0
    world.disk.faults.clear()
    check_readers(world.directory, world.promises())
