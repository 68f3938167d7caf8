"""The data directory and what is above it last, at whatever call their maker died; so does what stands in it."""

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from fencepost.broker.log.storage import disk as disks
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.metadata.identity import (
    META_PROPERTIES,
    META_PROPERTIES_TWIN,
    WrongDirectory,
    cluster_id_of,
    partition_counts,
)
from fencepost.protocol.topics import TopicPartition
from tests.kit.disk_nodes import nothing
from tests.kit.sim_disk import SimDisk

DATA = Path("/srv/kafka/data")


class Died(BaseException):
    """The process was killed here."""


def die_at(disk: SimDisk, call: int) -> None:
    left = [call]

    def before_io(kind: str, path: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Died

    disk.before_io = before_io


def calls_of_a_first_make() -> int:
    seen: list[str] = []
    disk = SimDisk()
    disk.before_io = lambda kind, path: seen.append(kind)
    FileStore(DATA, disk=disk).make()
    return len(seen)


@pytest.mark.parametrize("call", range(calls_of_a_first_make()))
def test_a_maker_that_was_killed_costs_no_data(call: int) -> None:
    """The next start finds the directory there, and its name not durable: then a file in it would not be either."""
    disk = SimDisk()
    die_at(disk, call)
    with pytest.raises(Died):
        FileStore(DATA, disk=disk).make()
    disk = disk.kill()
    store = FileStore(DATA, disk=disk)
    store.make()
    store.put("kept", b"acknowledged")
    after = FileStore(DATA, disk=disk.power_cut(nothing))
    assert after.load("kept") == b"acknowledged"


def test_a_directory_made_by_hand_lasts_as_well() -> None:
    """`mkdir -p` syncs nothing."""
    disk = SimDisk()
    for path in (*reversed(DATA.parents[:-1]), DATA):
        disk.mkdir(str(path), 0o777)
    store = FileStore(DATA, disk=disk)
    store.make()
    store.put("kept", b"acknowledged")
    assert FileStore(DATA, disk=disk.power_cut(nothing)).load("kept") == b"acknowledged"


def test_a_directory_in_use_costs_no_sync_at_the_next_start() -> None:
    disk = SimDisk()
    store = FileStore(DATA, disk=disk)
    store.make()
    store.put("kept", b"acknowledged")
    before = disk.counts["fsync"]
    FileStore(DATA, disk=disk).make()
    assert disk.counts["fsync"] == before


def test_above_what_we_may_read_nothing_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that an administrator made for us under one of his own."""
    directory = tmp_path / "data"
    directory.mkdir()

    def refuse(self: FileStore, path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(FileStore, "_sync_directory", refuse)
    FileStore(directory).make()


def test_a_file_that_is_deleted_during_a_listing_hides_no_other_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads delete files, and the process that starts cores replaces one in core 0's directory."""
    (tmp_path / "orders-0").mkdir()
    for name in ("gone", "stays"):
        (tmp_path / name).write_bytes(b"1")

    def scanned_before_a_deletion(path: str) -> nullcontext[list[os.DirEntry[str]]]:
        with os.scandir(path) as entries:
            found = list(entries)
        (tmp_path / "gone").unlink(missing_ok=True)
        return nullcontext(found)

    monkeypatch.setattr(disks, "os", SimpleNamespace(scandir=scanned_before_a_deletion))
    assert FileStore(tmp_path).children() == ["orders-0"]
    (tmp_path / "gone").write_bytes(b"1")
    assert FileStore(tmp_path).sizes() == {"stays": 1}


@pytest.mark.parametrize("call", range(5))
def test_meta_properties_are_whole_at_whatever_call_their_writer_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """Two files, each synced and then renamed, then their directory synced: five calls."""
    left = [call]

    def counted(what):  # type: ignore[no-untyped-def]
        def do(*args):  # type: ignore[no-untyped-def]
            left[0] -= 1
            if left[0] < 0:
                raise Died
            return what(*args)

        return do

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", counted(os.fsync))
        patch.setattr(Path, "replace", counted(Path.replace))
        with pytest.raises(Died):
            cluster_id_of(tmp_path, 1, None)
    assert left == [-1]
    twin = tmp_path / META_PROPERTIES_TWIN
    told = twin.read_text() if twin.exists() else ""
    assert bool(told) == (call >= 2)
    found = cluster_id_of(tmp_path, 1, None)
    assert found in told or not told, "a name that was told once stays"
    assert cluster_id_of(tmp_path, 1, None) == found
    assert (tmp_path / META_PROPERTIES).read_bytes() == twin.read_bytes()


TOPIC = "__consumer_offsets"
LOGS = [TopicPartition(TOPIC, 3), TopicPartition("orders", 9)]


def counts(directory: Path | None, setting: int, *logs: TopicPartition) -> int:
    return partition_counts(directory, {TOPIC: setting}, logs)[TOPIC]


@pytest.mark.parametrize("setting", [2, 4, 16])
def test_an_internal_topic_keeps_its_partitions_whatever_the_setting_says_later(tmp_path: Path, setting: int) -> None:
    """GroupCoordinatorService.startup: the number of the existing topic; the setting is for the one to be created."""
    cluster_id = cluster_id_of(tmp_path, 1, None)
    assert counts(tmp_path, 8) == 8
    assert counts(tmp_path, 5) == 5, "nothing was written yet"
    assert counts(tmp_path, setting, *LOGS) == 5
    assert cluster_id_of(tmp_path, 1, None) == cluster_id


def test_what_an_earlier_version_has_not_written_down_must_not_contradict_the_setting(tmp_path: Path) -> None:
    """Its number is not known then: a guess would look for ids in the wrong partitions."""
    cluster_id_of(tmp_path, 1, None)
    with pytest.raises(WrongDirectory, match="__consumer_offsets has a partition 3, and is set to have 2 partitions"):
        counts(tmp_path, 2, *LOGS)
    assert counts(tmp_path, 8, *LOGS) == 8
    assert counts(tmp_path, 2, *LOGS) == 8
    assert counts(None, 4, *LOGS) == 4
