"""Before a start the directory of each partition moves to its leader, whatever was interrupted before."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fencepost.broker.config.broker_config import BrokerConfig, load_config
from fencepost.broker.cores.arranging import arrange, arranged, had_cores, need_in_place
from fencepost.broker.cores.layout import next_start, read_start
from fencepost.broker.log.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    LOG_STARTS,
    LOG_STARTS_TWIN,
    RECOVERY_POINTS,
    decode_offsets,
    decode_owners,
    encode_offsets,
    encode_partition_metadata,
    is_exact,
)
from fencepost.broker.log.storage.disk import SystemDisk
from fencepost.broker.log.storage.layout import CORE_MOVES, core_directories, partition_of
from fencepost.broker.log.storage.lock import DirectoryInUse, lock_directory
from fencepost.broker.log.verify.report import Report
from fencepost.broker.metadata.identity import (
    CORES_VERSION,
    META_PROPERTIES,
    VERSION,
    WrongDirectory,
    check_format,
    set_format,
)
from fencepost.broker.metadata.reader import MetadataReader
from fencepost.broker.verification import verify
from fencepost.cli.main import cli
from fencepost.coordinator.metadata.placement import new_leaders
from fencepost.protocol.topics import TopicPartition
from fencepost.spark_pipelines.auditing.directories import plan_directories
from tests.kit import damage

ORDERS = [TopicPartition(damage.TOPIC, number) for number in range(damage.PARTITIONS)]
CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, LOG_STARTS_TWIN, CLEANER_OFFSETS)
Rows = dict[TopicPartition, tuple[int, bytes | None]]


class PowerCut(Exception):
    """The process died here."""


class DyingDisk(SystemDisk):
    """Dies at the call number `dies_at` of those that change the disk; None: never."""

    def __init__(self, dies_at: int | None = None) -> None:
        super().__init__()
        self.calls = 0
        self._dies_at = dies_at
        for name in ("rename", "unlink", "fsync", "mkdir", "pwrite", "rmdir"):
            setattr(self, name, self._counted(getattr(self, name)))

    def _counted(self, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object) -> object:
            self.calls += 1
            if self.calls == self._dies_at:
                raise PowerCut
            return call(*args)

        return counted


def never(cores: int) -> bool:
    raise AssertionError(f"{cores} cores had to run first")


def config_of(root: Path) -> BrokerConfig:
    return load_config(environ={}, assignments=[f"log.dirs={root}"])


def homes(root: Path) -> dict[TopicPartition, int]:
    """The core that has the directory of each partition; each is found once."""
    found: dict[TopicPartition, int] = {}
    for number, path in core_directories(root).items():
        for child in path.iterdir():
            tp = partition_of(child.name)
            if tp is not None and child.is_dir():
                assert found.setdefault(tp, number) == number, tp
    return found


def homes_of_all(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.name != ".lock")


def rows(path: Path, name: str) -> Rows:
    data = (path / name).read_bytes() if (path / name).exists() else None
    owners = decode_owners(data, name)
    return {tp: (offset, owners.get(tp)) for tp, offset in decode_offsets(data, name).items()}


def files(root: Path) -> dict[tuple[str, str], tuple[int, bytes]]:
    """The inode and the bytes of each file of a partition."""
    return {
        (path.parent.name, path.name): (path.stat().st_ino, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file() and partition_of(path.parent.name) is not None
    }


def assert_arranged(root: Path, cores: int, original: dict[str, Rows]) -> None:
    """Everything is where the plan wants it, and each row of the checkpoint files is with its partition."""
    image = MetadataReader(root).image()
    moved = new_leaders(image, range(1, 1 + cores))
    where = homes(root)
    for tp, number in where.items():
        if tp.topic in image.topics_by_name:
            leader = moved.get(tp, image.topics_by_name[tp.topic].assignment[tp.partition].leader)
            assert number == leader - 1, tp
    for name, expected in original.items():
        found: Rows = {}
        for number, path in core_directories(root).items():
            for tp, row in rows(path, name).items():
                assert where.get(tp, 0) == number, (name, tp)
                found[tp] = row
        assert found == expected, name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    import trio

    base = tmp_path_factory.mktemp("made")
    trio.run(damage.make, base / "data", base / "killed")
    for path in (base / "data", base / "killed"):
        image = MetadataReader(path).image()
        topic_id = image.topics_by_name[damage.TOPIC].topic_id
        owners = dict.fromkeys(ORDERS, topic_id)
        for name in (LOG_STARTS, LOG_STARTS_TWIN):
            (path / name).write_bytes(encode_offsets({ORDERS[1]: 3, ORDERS[2]: 5}, owners, exact=True))
        (path / CLEANER_OFFSETS).write_bytes(encode_offsets({ORDERS[2]: 4}, owners))
    return base / "data", base / "killed"


@pytest.fixture
def root(made: tuple[Path, Path], tmp_path: Path) -> Path:
    shutil.copytree(made[0], tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def killed(made: tuple[Path, Path], tmp_path: Path) -> Path:
    shutil.copytree(made[1], tmp_path / "killed")
    return tmp_path / "killed"


async def look_at(root: Path) -> damage.Seen:
    """All that clients see of a directory whose cores are gone."""
    set_format(root, VERSION)
    return await damage.look(root)


def original_rows(root: Path) -> dict[str, Rows]:
    return {name: rows(root, name) for name in CHECKPOINTS}


async def test_partitions_move_to_their_cores_and_back_without_a_copy(root: Path) -> None:
    seen = await damage.look(root)
    before, kept = files(root), original_rows(root)
    assert not had_cores(root)
    assert arrange(config_of(root), 3, never)
    assert len(set(homes(root).values())) == 3
    assert_arranged(root, 3, kept)
    assert files(root) == before
    assert all((path / CLEAN_SHUTDOWN).exists() for path in core_directories(root).values())
    assert is_exact((root / "cores" / "1" / RECOVERY_POINTS).read_bytes())
    assert is_exact((root / "cores" / "1" / LOG_STARTS).read_bytes())
    assert arrange(config_of(root), 1, never)
    assert_arranged(root, 1, kept)
    assert await look_at(root) == seen


@pytest.mark.parametrize("then", [3, 2, 1])
async def test_a_crash_at_any_step_loses_nothing(root: Path, tmp_path: Path, then: int) -> None:
    """The next start, with whatever number of cores, finishes or takes back what was begun."""
    seen = await damage.look(root)
    kept = original_rows(root)
    for number in range(then, 400, 3):  # all steps, over the three cases
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy)
        disk = DyingDisk(number)
        try:
            arrange(config_of(copy), 3, never, disk)
        except PowerCut:
            pass
        else:
            break
        report = Report()
        verify(copy, report, shallow=True)
        assert not report.damaged, report.findings
        second = DyingDisk(number // 2 + 1)
        try:
            arrange(config_of(copy), then, never, second)
        except PowerCut:
            assert arrange(config_of(copy), then, never)
        assert_arranged(copy, then, kept)
        if number % 10 == 0:
            arrange(config_of(copy), 1, never)
            assert await look_at(copy) == seen
    else:
        raise AssertionError("it never came to its end")
    assert number > 30


def test_after_an_unclean_end_the_cores_of_the_last_start_run_first(killed: Path) -> None:
    """Decision 0080: only a marker may know an outcome, and a coordinator looks for it only on its own core."""
    before, ran = homes(killed), list[int]()
    assert not arrange(config_of(killed), 3, lambda cores: bool(ran.append(cores)))
    assert (ran, homes(killed)) == ([1], before)
    assert not (killed / CORE_MOVES).exists()
    check_format(killed)

    def finish(cores: int) -> bool:
        assert homes(killed) == before
        return True

    assert arrange(config_of(killed), 3, finish)
    assert len(set(homes(killed).values())) == 3
    assert (killed / CORE_MOVES).exists()


def test_cores_that_run_first_have_their_directories(killed: Path) -> None:
    """The metadata log was cut: what is left of it says that one core has all, and the directories are on three."""
    assert arrange(config_of(killed), 3, lambda cores: True)
    (killed / CORE_MOVES).unlink()
    assert len(set(homes(killed).values())) == 3

    def finish(cores: int) -> bool:
        assert (cores, set(homes(killed).values())) == (1, {0})
        return True

    assert arrange(config_of(killed), 3, finish)
    assert len(set(homes(killed).values())) == 3


def test_what_was_torn_is_not_trusted_after_a_move(killed: Path) -> None:
    """A clean directory that gets a partition of one that was not shut down cleanly is unclean, too."""
    other = killed / "cores" / "1"
    other.mkdir(parents=True)
    (other / CLEAN_SHUTDOWN).write_bytes(b"")
    assert arrange(config_of(killed), 3, lambda cores: True)
    assert not any((path / CLEAN_SHUTDOWN).exists() for path in core_directories(killed).values())


def test_what_has_begun_is_not_run_before_it_is_finished(root: Path) -> None:
    """A crash in the middle leaves what an unclean end leaves: but no outcome is in doubt, and no core may run."""
    with pytest.raises(PowerCut):
        arrange(config_of(root), 3, never, DyingDisk(40))
    (root / CLEAN_SHUTDOWN).unlink(missing_ok=True)
    assert (root / CORE_MOVES).exists()
    assert arrange(config_of(root), 2, never)
    arranged(root)
    assert not (root / CORE_MOVES).exists()


def test_the_log_of_a_deleted_topic_makes_way(root: Path) -> None:
    """A topic was deleted and made again, and a crash left a log of the first one on another core."""
    moved = new_leaders(MetadataReader(root).image(), range(1, 4))
    tp = next(tp for tp in ORDERS if tp in moved)
    there = root / "cores" / str(moved[tp] - 1) / str(tp)
    there.mkdir(parents=True)
    (there / "partition.metadata").write_bytes(encode_partition_metadata(b"d" * 16))
    (there.parent / CLEAN_SHUTDOWN).write_bytes(b"")
    before = (root / str(tp) / f"{0:020d}.log").read_bytes()
    assert arrange(config_of(root), 3, never)
    assert (there / f"{0:020d}.log").read_bytes() == before
    assert there.with_name(f"{tp}.{(b'd' * 16).hex()}-stray").is_dir()


def test_one_partition_in_two_directories_is_refused(root: Path) -> None:
    shutil.copytree(root / str(ORDERS[0]), root / "cores" / "2" / str(ORDERS[0]))
    before = homes_of_all(root)
    with pytest.raises(WrongDirectory, match=r"orders-0 and .*orders-0 are the same partition"):
        arrange(config_of(root), 3, never)
    assert homes_of_all(root) == before


def test_a_lost_log_is_still_lost(root: Path) -> None:
    """Its recovery point moves: so the next start reports it, instead of beginning it again at offset 0."""
    moved = new_leaders(MetadataReader(root).image(), range(1, 4))
    tp = next(tp for tp in ORDERS if tp in moved)
    row = rows(root, RECOVERY_POINTS)[tp]
    shutil.rmtree(root / str(tp))
    assert arrange(config_of(root), 3, never)
    assert rows(root / "cores" / str(moved[tp] - 1), RECOVERY_POINTS)[tp] == row
    assert tp not in rows(root, RECOVERY_POINTS)


def test_logs_of_unknown_topics_stay_and_are_reported(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    unknown = root / "cores" / "2" / "unknown-0"
    unknown.mkdir(parents=True)
    (unknown / f"{0:020d}.log").write_bytes(b"x")
    caplog.set_level(logging.WARNING)
    assert arrange(config_of(root), 1, never)
    assert (unknown / f"{0:020d}.log").read_bytes() == b"x"
    assert "cores/2 logs=unknown-0" in caplog.text


def test_no_broker_may_run_meanwhile(root: Path) -> None:
    (root / "cores" / "1").mkdir(parents=True)
    lock_directory(root / "cores" / "1")
    with pytest.raises(DirectoryInUse):
        arrange(config_of(root), 3, never)


def test_an_older_version_refuses_a_directory_that_cores_have_used(root: Path) -> None:
    """Before anything has moved, and for good: after the cores it would write markers of an epoch that is too low."""
    with pytest.raises(PowerCut):
        arrange(config_of(root), 3, never, DyingDisk(1))
    assert f"version={CORES_VERSION}" in (root / META_PROPERTIES).read_text()
    arrange(config_of(root), 1, never)
    with pytest.raises(WrongDirectory, match="only `fencepost serve --data` can use it"):
        damage.node_over(root)
    check_format(root, cores=True)


def test_metadata_that_were_cut_move_nothing_behind_the_brokers(root: Path) -> None:
    """Core 0 has cut a damaged metadata log: what is left names other leaders than those that directories moved to."""
    image = MetadataReader(root).image()
    arrange(config_of(root), 3, never)
    need_in_place(config_of(root), 3, image)
    with pytest.raises(WrongDirectory, match="start it again, which moves them"):
        need_in_place(config_of(root), 1, image)


def test_an_audit_reads_the_directories_of_all_cores(root: Path) -> None:
    before = plan_directories([root], [damage.TOPIC])
    arrange(config_of(root), 3, never)
    after = plan_directories([root], [damage.TOPIC])
    assert len(set(homes(root).values())) == 3
    assert (after.bounds, after.owners) == (before.bounds, before.owners)
    assert sorted(one.base_offset for one in after.pieces) == sorted(one.base_offset for one in before.pieces)


def test_a_check_reads_the_directories_of_all_cores(root: Path) -> None:
    arrange(config_of(root), 3, never)
    arranged(root)
    number, tp = next((number, tp) for tp, number in homes(root).items() if number and tp in ORDERS)
    report = Report()
    verify(root, report)
    assert not report.damaged, report.findings
    assert {str(tp) for tp in homes(root)} == {one.partition for one in report.partitions}
    log = root / "cores" / str(number) / str(tp) / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    report = Report()
    verify(root, report, topic=tp.topic, partition=tp.partition)
    assert report.damaged
    assert report.findings[0].file.startswith(f"cores/{number}/{tp}/")


def test_a_backup_has_the_directories_of_all_cores(root: Path, tmp_path: Path) -> None:
    arrange(config_of(root), 3, never)
    next_start(root)
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    assert run("backup", str(root), str(backup)).exit_code == 0
    assert run("restore", str(backup), str(restored)).exit_code == 0
    assert homes(restored) == homes(root)
    assert read_start(restored) == 1
    report = Report()
    verify(restored, report)
    assert not report.damaged, report.findings
    assert rows(restored / "cores" / "1", LOG_STARTS) == {
        tp: (offset, None) for tp, (offset, _) in rows(root / "cores" / "1", LOG_STARTS).items()
    }


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)
