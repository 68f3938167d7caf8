"""How long the bytes of what was deleted stay: file.delete.delay.ms, a full disk, stops and starts (row L3)."""

import errno
from dataclasses import replace

import pytest

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.deletions import FULL_SECONDS
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.protocol.errors import ErrorCode
from tests.kit.disk_faults import Fault
from tests.kit.sim_disk import SimDisk
from tests.kit.trimming import delete_records
from tests.unit.log.compaction_kit import COMPACT, clean, put, seen
from tests.unit.log.kit import NOW_MS, TOPIC_ID, TP, batch, send, settle
from tests.unit.log.upkeep_kit import DATA, files_of, opened, written

DELAY_SECONDS = LogConfig().file_delete_delay_ms / 1000


def do_chores(directory: LogManager, seconds: float) -> None:
    for chore in directory.background_tasks(seconds):
        chore.sync()


def delete_some(log: PartitionLog, up_to: int = 9) -> None:
    assert delete_records(log, up_to)[0] is ErrorCode.NONE


def test_l3_deleted_segments_keep_their_bytes_for_file_delete_delay_ms():
    """Row L3, as Kafka: the names go at once, the bytes a minute later, counted from when a thread first looks."""
    disk = SimDisk()
    directory, log = written(disk)
    delete_some(log)
    waiting = files_of(disk, ".deleted")
    assert any(".log" in name for name in waiting)
    do_chores(directory, 100.0)
    do_chores(directory, 100.0 + DELAY_SECONDS - 0.1)
    assert files_of(disk, ".deleted") == waiting
    do_chores(directory, 100.0 + DELAY_SECONDS)
    assert not files_of(disk, ".deleted")


def test_l3_the_delay_is_that_of_the_topic_and_of_the_moment():
    disk = SimDisk()
    directory, log = written(disk)
    log.config = replace(log.config, file_delete_delay_ms=0)
    delete_some(log)
    do_chores(directory, 100.0)
    assert not files_of(disk, ".deleted")


def test_l3_on_a_full_disk_nothing_waits():
    """Ours, beyond Kafka: an append that finds no room gives back what was deleted, and what is within ten minutes."""
    disk = SimDisk()
    directory, log = written(disk)
    delete_some(log, up_to=6)
    do_chores(directory, 100.0)
    assert files_of(disk, ".deleted")
    disk.faults.append(Fault(0, code=errno.ENOSPC, kinds=("pwrite",), path_part=str(TP)))
    assert send(log, batch()).error is ErrorCode.KAFKA_STORAGE_ERROR
    do_chores(directory, 101.0)
    assert not files_of(disk, ".deleted")
    delete_some(log)
    assert files_of(disk, ".deleted")
    do_chores(directory, 101.0 + FULL_SECONDS - 1)
    assert not files_of(disk, ".deleted")


def test_l3_after_ten_minutes_without_a_full_disk_deletions_wait_again():
    disk = SimDisk()
    directory, log = written(disk)
    directory.make_room(OSError(errno.ENOSPC, "full"))
    do_chores(directory, 100.0)
    delete_some(log)
    do_chores(directory, 100.0 + FULL_SECONDS)
    assert files_of(disk, ".deleted")


def test_l3_another_error_than_a_full_disk_hurries_nothing():
    disk = SimDisk()
    directory, log = written(disk)
    delete_some(log)
    directory.make_room(OSError(errno.EIO, "broken"))
    do_chores(directory, 100.0)
    assert files_of(disk, ".deleted")


@pytest.mark.parametrize("in_order", [True, False])
def test_l3_a_restart_deletes_at_once_what_still_waits(in_order: bool):
    """As Kafka, which deletes what ends in .deleted when it loads a log."""
    disk = SimDisk()
    directory, log = written(disk)
    delete_some(log)
    do_chores(directory, 100.0)
    if in_order:
        directory.close()
        assert not files_of(disk, ".deleted")
    again = disk.kill()
    assert opened(again).get(TP) is not None
    assert not files_of(again, ".deleted")


def test_l3_a_deleted_topic_keeps_its_directory_for_the_delay_under_another_name():
    disk = SimDisk()
    directory, _ = written(disk)
    directory.delete(TP)
    do_chores(directory, 100.0)
    (left,) = [name for name in disk.root.entries["data"].entries if name.endswith("-delete")]  # type: ignore[union-attr]
    assert disk.file_names(f"{DATA}/{left}")
    do_chores(directory, 100.0 + DELAY_SECONDS)
    assert left not in disk.root.entries["data"].entries  # type: ignore[union-attr]


def test_l4_segments_that_compaction_replaced_wait_as_well():
    """Row L4: after a kill they are cleared away, and do not come back."""
    disk = SimDisk()
    directory = opened(disk)
    log = directory.create(TP, TOPIC_ID, COMPACT)
    for number in range(60):
        put(log, ("k", f"v{number}"))
    log.roll(NOW_MS)
    settle(log)
    clean(log)
    assert any(".log" in name for name in files_of(disk, ".deleted"))
    do_chores(directory, 100.0)
    assert files_of(disk, ".deleted")
    again = disk.kill()
    found = opened(again).get(TP)
    assert found is not None
    assert seen(found) == {"k": "v59"}
    assert not files_of(again, ".deleted")
    do_chores(directory, 100.0 + DELAY_SECONDS)
    assert not files_of(disk, ".deleted")
