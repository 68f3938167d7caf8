"""The simulated disk is as bad as a real one may be, and no better: what POSIX promises, and nothing beyond."""

import errno
import os

import pytest

from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import data_only, everything, names_only, nothing, sampled, torn_at
from tests.kit.sim_disk import SimDisk
from tests.simulation.script import MONEY, SMALL
from tests.simulation.world import DATA, World

DIRECTORY = f"{DATA}/{MONEY}"
CREATE = os.O_RDWR | os.O_CREAT


def written(disk: SimDisk, path: str, data: bytes) -> int:
    """A new file with these bytes, not synced; its descriptor."""
    fd = disk.open(path, CREATE, 0o600)
    assert disk.pwrite(fd, data, 0) == len(data)
    return fd


def sync_directory(disk: SimDisk, path: str = "/") -> None:
    """Make the names in a directory durable."""
    fd = disk.open(path, os.O_RDONLY | os.O_DIRECTORY, 0)
    disk.fsync(fd)
    disk.close(fd)


def content(disk: SimDisk, path: str) -> bytes | None:
    """What a new process reads; None where there is no such file."""
    try:
        return bytes(disk.file(path).data)
    except FileNotFoundError:
        return None


def test_a_kill_keeps_the_page_cache_and_a_power_cut_what_was_synced():
    disk = SimDisk()
    fd = written(disk, "/a", b"first")
    disk.fdatasync(fd)
    sync_directory(disk)
    disk.pwrite(fd, b" second", 5)
    assert content(disk.kill(), "/a") == b"first second"
    assert content(disk.kill().power_cut(nothing), "/a") == b"first"
    assert content(disk.power_cut(everything), "/a") == b"first second"
    assert content(disk.power_cut(names_only), "/a") == b"first\0\0\0\0\0\0\0"
    assert content(disk.power_cut(torn_at(8)), "/a") == b"first se"
    assert content(disk.power_cut(torn_at(8, zeros=True)), "/a") == b"first se\0\0\0\0"


@pytest.mark.parametrize(
    ("synced", "kept"), [((), "/a/x"), (("/a",), "/a/x"), (("/b",), "/a/x"), (("/a", "/b"), "/b/y")]
)
def test_a_directory_moves_whole_or_not_at_all(synced: tuple[str, ...], kept: str):
    """One rename from a directory into another is durable when both are synced."""
    disk = SimDisk()
    for path in ("/a", "/b", "/a/x"):
        disk.mkdir(path, 0o700)
    disk.fdatasync(written(disk, "/a/x/file", b"data"))
    for path in ("/", "/a", "/b", "/a/x"):
        sync_directory(disk, path)
    disk.rename("/a/x", "/b/y")
    for path in synced:
        sync_directory(disk, path)
    for seed in range(10):
        after = disk.power_cut(sampled, seed)
        assert (content(after, "/a/x/file") is None) != (content(after, "/b/y/file") is None)
    places = ("/a/x", "/b/y")
    assert [place for place in places if content(disk.power_cut(nothing), f"{place}/file")] == [kept]
    assert [place for place in places if content(disk.power_cut(everything), f"{place}/file")] == ["/b/y"]
    assert [place for place in places if content(disk.kill().power_cut(nothing), f"{place}/file")] == [kept]


def test_a_killed_process_changes_nothing_that_others_see():
    """Of several processes on one disk: what it still calls before its tasks end, it does to a copy."""
    disk = SimDisk()
    fd = written(disk, "/a", b"first")
    others = disk.kill_one()
    disk.pwrite(fd, b" second", 5)
    disk.rename("/a", "/b")
    assert (content(others, "/a"), content(others, "/b")) == (b"first", None)


def test_a_synced_file_is_lost_when_its_name_was_not_synced():
    disk = SimDisk()
    disk.fdatasync(written(disk, "/a", b"data"))
    assert content(disk.power_cut(data_only), "/a") is None
    sync_directory(disk)
    assert content(disk.power_cut(nothing), "/a") == b"data"


def test_a_rename_comes_through_whole_or_not_at_all():
    disk = SimDisk()
    disk.fdatasync(written(disk, "/a", b"old"))
    disk.fdatasync(written(disk, "/b", b"new"))
    sync_directory(disk)
    disk.rename("/b", "/a")
    lost, kept = disk.power_cut(nothing), disk.power_cut(everything)
    assert (content(lost, "/a"), content(lost, "/b")) == (b"old", b"new")
    assert (content(kept, "/a"), content(kept, "/b")) == (b"new", None)


def test_names_of_one_directory_are_lost_from_the_end_only():
    disk = SimDisk()
    for name in "abcdef":
        disk.fdatasync(written(disk, f"/{name}", b"x"))
    for seed in range(50):
        left = "".join(sorted(entry.name for entry in disk.power_cut(sampled, seed).listing("/")))
        assert "abcdef".startswith(left)


def test_a_failed_sync_calls_the_pages_clean_and_a_later_one_lies():
    """What fsync did to databases in 2018: the second call succeeds, the bytes are gone all the same."""
    disk = SimDisk()
    fd = written(disk, "/a", b"data")
    sync_directory(disk)
    disk.faults.append(Fault.once(disk.io_count))
    with pytest.raises(OSError, match="Input/output"):
        disk.fdatasync(fd)
    disk.fdatasync(fd)
    assert content(disk.kill(), "/a") == b"data"
    assert content(disk.power_cut(everything), "/a") == b""


def test_a_full_disk_takes_a_part_then_nothing_and_then_all_again():
    disk = SimDisk()
    fd = written(disk, "/a", b"")
    disk.room_bytes = 3
    assert disk.pwrite(fd, b"data", 0) == 3
    with pytest.raises(OSError, match="No space") as failure:
        disk.pwrite(fd, b"a", 3)
    assert failure.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        disk.open("/b", CREATE, 0o600)
    disk.room_bytes = None
    assert disk.pwrite(fd, b"a", 3) == 1


def test_faults_meet_the_calls_they_name_by_number_kind_and_place():
    disk = SimDisk()
    fd = written(disk, "/a.log", b"data")
    disk.faults.append(Fault(0, kinds=("pread",), path_part=".index"))
    assert disk.pread(fd, 4, 0) == b"data"
    other = written(disk, "/a.index", b"data")
    with pytest.raises(OSError, match="Input/output"):
        disk.pread(other, 4, 0)
    disk.faults[:] = [Fault.short_write(disk.io_count, 1)]
    assert disk.pwrite(fd, b"more", 4) == 1
    assert disk.pwrite(fd, b"ore", 5) == 3
    assert disk.counts["pwrite"] == 4


def test_a_fault_that_is_over_takes_no_other_with_it_that_began_at_the_same_call():
    """Share world 5100272: the first that ended took its twin away, and the disk stayed full for ever."""
    disk = SimDisk()
    first, second = Fault.full(0), Fault.full(0)
    disk.faults += [first, second]
    disk.faults.remove(second)
    with pytest.raises(OSError, match="No space"):
        disk.open("/a", CREATE, 0o600)
    assert (first.hits, second.hits) == (1, 0)
    disk.faults.remove(first)
    written(disk, "/a", b"all is well again")


def test_a_flipped_bit_survives_everything():
    disk = SimDisk()
    written(disk, "/a", b"a")
    sync_directory(disk)
    disk.flip("/a", 0, 1)
    assert content(disk.power_cut(nothing), "/a") == b"c"


def test_one_seed_is_one_history():
    """The same operations make the same calls; the same seed leaves the same bytes."""
    disks = []
    for _ in range(2):
        world = World("fsync")
        world.create(MONEY, b"t" * 16, SMALL)
        for count in range(1, 20):
            world.append(MONEY, 7, count % 3 + 1, 40, transactional=False)
        disks.append(world.disk)
    assert disks[0].counts == disks[1].counts
    left = [disk.power_cut(sampled, 4) for disk in disks]
    names = [entry.name for entry in left[0].listing(DIRECTORY)]
    assert names == [entry.name for entry in left[1].listing(DIRECTORY)]
    assert [content(left[0], f"{DIRECTORY}/{n}") for n in names] == [
        content(left[1], f"{DIRECTORY}/{n}") for n in names
    ]
