"""What a start can tell from names, sizes and seals: which segments are missing, and which were deleted by right."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from fencepost.broker.log.backup.pins import partitions_in
from fencepost.broker.log.backup.writing import small_files
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.housekeeping import housekeep
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.storage import resumed_reads
from fencepost.broker.log.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    LOG_STARTS,
    LOG_STARTS_TWIN,
    RECOVERY_POINTS,
    decode_offsets,
    is_exact,
)
from fencepost.broker.log.storage.store import CorruptLogFile, SyncTask
from fencepost.protocol.batch_header import check_crc
from tests.kit.trimming import delete_records
from tests.unit.log.compaction_kit import COMPACT, clean, put
from tests.unit.log.kit import NOW_MS, TOPIC_ID, TP, batch, headers, send, settle

TINY = LogConfig(segment_bytes=200)
ONE_LEFT = LogConfig(segment_bytes=200, retention_bytes=300)
SEGMENTS = 8


def filled(path: Path) -> LogManager:
    """A log of several segments of five records each, all durable."""
    logs = LogManager.open(path)
    log = logs.create(TP, TOPIC_ID, TINY)
    for _ in range(SEGMENTS):
        send(log, batch(5))
    settle(log)
    assert len(log.segments) == SEGMENTS
    return logs


@pytest.fixture
def data(tmp_path: Path) -> Path:
    filled(tmp_path / "data").close()
    return tmp_path / "data"


def logs_in(data: Path) -> list[Path]:
    return sorted((data / str(TP)).glob("*.log"))


def opened(data: Path, config: LogConfig = TINY) -> tuple[int, int]:
    """The bounds of the log. Raises CorruptLogFile."""
    logs = LogManager.open(data)
    try:
        log = logs.create(TP, TOPIC_ID, config)
        return log.log_start_offset, log.log_end_offset
    finally:
        logs.close()


def without_seals(data: Path) -> None:
    for seal in (data / str(TP)).glob("*.seal"):
        seal.unlink()


def killed(data: Path) -> None:
    """A start scans from the oldest snapshot."""
    (data / CLEAN_SHUTDOWN).unlink()
    for snapshot in (data / str(TP)).glob("*.snapshot"):
        snapshot.unlink()


def inexact(data: Path) -> None:
    """Checkpoints as Kafka and earlier versions wrote them."""
    for path in data.glob("*checkpoint*"):
        path.write_bytes(path.read_bytes().replace(b"#crc32c 1", b"#crc32c 0"))


@pytest.mark.parametrize("states", [(), (without_seals,), (killed,), (killed, without_seals)])
@pytest.mark.parametrize("number", range(SEGMENTS))
def test_any_missing_segment_takes_the_log_offline(
    data: Path, number: int, states: tuple[Callable[[Path], None], ...]
) -> None:
    """L2: with and without seals (Kafka has none), after an orderly stop and after a kill, and at each later start."""
    for state in states:
        state(data)
    logs_in(data)[number].unlink()
    for _ in range(2):
        with pytest.raises(CorruptLogFile, match=r"is missing|was durable"):
            opened(data)


def test_a_log_start_of_kafka_or_an_earlier_version_proves_nothing(data: Path) -> None:
    """Kafka's `UnifiedLog.deleteSegments` deletes first; its `checkpointLogStartOffsets` writes up to a minute later.

    Once every log was opened, the log starts of this version prove a loss.
    """
    inexact(data)
    logs_in(data)[0].unlink()
    assert opened(data) == (5, 5 * SEGMENTS)
    assert opened(data) == (5, 5 * SEGMENTS)
    logs_in(data)[0].unlink()
    with pytest.raises(CorruptLogFile, match="first segment is missing"):
        opened(data)


def test_a_log_that_was_not_opened_since_an_upgrade_proves_nothing(data: Path) -> None:
    inexact(data)
    logs_in(data)[0].unlink()
    LogManager.open(data).close()
    assert opened(data) == (5, 5 * SEGMENTS)


def test_segments_below_the_log_start_may_be_missing(data: Path) -> None:
    """DeleteRecords, and a kill at each step: the log start was durable first."""
    logs = LogManager.open(data)
    log = logs.create(TP, TOPIC_ID, TINY)
    delete_records(log, 12)
    shutil.copytree(data, data.with_name("killed"))
    logs.close()
    assert opened(data.with_name("killed")) == opened(data) == (12, 5 * SEGMENTS)


def test_retention_makes_the_log_start_durable_before_it_deletes(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the write of the log start and the deletion, and one after it."""
    logs = LogManager.open(data)
    log = logs.create(TP, TOPIC_ID, ONE_LEFT)
    seen: list[tuple[int, int]] = []

    def watch() -> None:
        copy = data.with_name(f"killed{len(seen)}")
        shutil.copytree(data, copy)
        seen.append((len(logs_in(copy)), opened(copy)[0]))

    drop_front = log.segments.drop_front

    def dropping(count: int) -> list[SyncTask]:
        watch()
        return drop_front(count)

    monkeypatch.setattr(log.segments, "drop_front", dropping)
    trio.run(housekeep, logs, NOW_MS)
    watch()
    logs.close()
    before, after = seen
    assert before[0] == SEGMENTS > after[0]
    assert before[1] == after[1] > 0


def test_a_full_disk_does_not_keep_retention_from_freeing_space(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log start cannot be written: then its copy goes, and the missing segments prove no loss."""
    logs = LogManager.open(data)
    log = logs.create(TP, TOPIC_ID, ONE_LEFT)

    class Full:
        def sync(self) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(logs, "log_start_files", lambda: [Full()])
    trio.run(housekeep, logs, NOW_MS)
    monkeypatch.undo()
    assert len(log.segments) < SEGMENTS
    assert not (data / LOG_STARTS_TWIN).exists()
    shutil.copytree(data, data.with_name("killed"))
    start = log.log_start_offset
    logs.close()
    assert opened(data.with_name("killed"))[0] == opened(data)[0] == start > 0


def test_gaps_of_a_compacted_log_are_no_holes(tmp_path: Path) -> None:
    """L4: with and without seals; under another policy as long as the cleaner's checkpoint knows the log."""
    data = tmp_path / "data"
    logs = LogManager.open(data)
    log = logs.create(TP, TOPIC_ID, COMPACT)
    for number in range(40):
        put(log, (f"key {number % 3}", "value" * 20))
        if number % 8 == 0:
            log.roll(NOW_MS)
    settle(log)
    clean(log)
    logs.kept.note_cleaned(TP, log.log_end_offset)
    kept = [header.base_offset for header in headers(log)]
    assert len(kept) < log.log_end_offset // 2, "there are gaps"
    logs.close()
    bounds = opened(data, COMPACT)
    for state in (without_seals, killed, without_seals):
        state(data)
        assert opened(data, COMPACT) == opened(data, TINY) == bounds
    assert (data / CLEANER_OFFSETS).exists()


def test_a_missing_directory_is_expected_only_of_a_topic_that_exists(data: Path) -> None:
    shutil.rmtree(data / str(TP))
    logs = LogManager.open(data)
    assert logs.expect(lambda tp: False) == []
    logs.kept.purge()
    logs.close()
    assert str(TP.topic).encode() not in (data / RECOVERY_POINTS).read_bytes()
    assert opened(data) == (0, 0), "a new topic of the name"


def test_a_missing_directory_stays_missing_over_a_stop(data: Path) -> None:
    shutil.rmtree(data / str(TP))
    for _ in range(2):
        logs = LogManager.open(data)
        assert logs.expect(lambda tp: True) == [TP]
        with pytest.raises(CorruptLogFile, match="directory is missing"):
            logs.create(TP, TOPIC_ID, TINY)
        logs.close()
    assert not (data / str(TP)).exists()


def test_damage_is_logged_where_a_consumer_resumes_and_a_proceeding_one_checks_nothing(
    data: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that commits stops in front of the damaged batch, and begins there again. Another reads on."""
    path = logs_in(data)[3]
    hurt = bytearray(path.read_bytes())
    hurt[-1] ^= 1
    path.write_bytes(hurt)
    logs = LogManager.open(data)
    log = logs.create(TP, TOPIC_ID, TINY)
    checks: list[int] = []
    monkeypatch.setattr(resumed_reads, "check_crc", lambda *args: checks.append(1) or check_crc(*args))
    for offset in range(0, 5 * SEGMENTS, 5):
        log.segments.read(offset, 5 * SEGMENTS, 1, True)
    assert len(checks) == 1, "of the first read"
    assert not caplog.records
    for _ in range(2):
        log.segments.read(16, 5 * SEGMENTS, 1 << 20, True)
    assert [f"{path} is damaged at byte 0, offset 15" in record.getMessage() for record in caplog.records] == [True]
    assert log.segments.read(15, 20, 1, True).size_bytes == len(hurt), "the batch is sent as it is"
    logs.close()


def test_a_backup_has_partitions_that_are_links_and_log_starts_that_prove_nothing(data: Path, tmp_path: Path) -> None:
    """The log starts are read before the files are linked: retention may delete segments between."""
    (data / str(TP)).rename(tmp_path / "elsewhere")
    (data / str(TP)).symlink_to(tmp_path / "elsewhere")
    assert partitions_in(data) == [str(TP)]
    small = small_files(data)
    assert is_exact((data / LOG_STARTS).read_bytes())
    assert not any(is_exact(content) for content in small.values())
    assert decode_offsets(small[LOG_STARTS], LOG_STARTS) == {}
