"""What a check of a data directory calls damage, what a crash's doing, and what is only strange; it never writes."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from fencepost.broker.log.compaction.record_work import Offload
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.storage.checkpoints import CLEAN_SHUTDOWN
from fencepost.broker.log.storage.layout import ACCEPT_LOSS
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.log.verify.report import Level, Report
from fencepost.broker.verification import verify
from tests.unit.log.compaction_kit import COMPACT, HOUR_MS, begin, clean, put
from tests.unit.log.compaction_kit import transact as transact_keyed
from tests.unit.log.kit import NOW_MS, SMALL, TOPIC_ID, TP, batch, end, headers, send, settle, transact

LOG = f"{TP}/{0:020d}.log"


def checked(directory: Path, **more: object) -> Report:
    report = Report()
    verify(directory, report, **more)
    return report


def told(report: Report) -> list[tuple[str, str]]:
    return [(finding.level.value, finding.file) for finding in report.findings]


def filled(directory: Path) -> LogManager:
    """Several segments with transactions in every state, all durable."""
    logs = LogManager.open(directory)
    log = logs.create(TP, TOPIC_ID, SMALL)
    for number in range(16):
        transact(log, 7, 0, 3 * number, count=3)
        send(log, batch(4))
        end(log, 7, 0, commit=number % 2 == 0)
    transact(log, 8, 0, 0)
    settle(log)
    assert len(log.segments) > 2
    return logs


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """As kill -9 leaves it: no clean shutdown, recovery points behind."""
    logs = filled(tmp_path / "live")
    logs.write_checkpoints()
    log = logs.create(TP, TOPIC_ID, SMALL)
    transact(log, 9, 0, 0, count=2)
    send(log, batch(6))
    shutil.copytree(tmp_path / "live", tmp_path / "data")
    logs.close()
    return tmp_path / "data"


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    filled(tmp_path / "data").close()
    return tmp_path / "data"


def test_bounds_are_derived_from_the_batches(closed: Path) -> None:
    """I1: the LSO is where the oldest open transaction begins, whatever any file says."""
    report = checked(closed)
    assert not report.findings
    facts = report.partitions[0]
    logs = LogManager.open(closed)
    log = logs.get(TP)
    assert log is not None
    assert (facts.log_start_offset, facts.log_end_offset) == (0, log.log_end_offset)
    assert (facts.last_stable_offset, facts.open_transactions) == (log.last_stable_offset, 1)
    assert report.batches == len(headers(log))
    logs.close()


def test_a_torn_end_above_the_recovery_point_is_a_note(killed: Path) -> None:
    """L2: nobody was told of it, and the next start cuts it off; below the recovery point the same is damage."""
    assert not checked(killed).findings
    last = sorted((killed / str(TP)).glob("*.log"))[-1]
    os.truncate(last, last.stat().st_size - 5)
    report = checked(killed)
    assert told(report) == [("note", f"{TP}/{last.name}")]
    assert not report.damaged
    os.truncate(last, 3)
    report = checked(killed)
    assert report.damaged, "the recovery point lay beyond"
    assert {finding.file for finding in report.findings if finding.level is Level.DAMAGE} == {f"{TP}/{last.name}"}


def add_room(data: Path) -> Path:
    """Zeros behind the last batch, as decision 0018 reserves them."""
    last = sorted((data / str(TP)).glob("*.log"))[-1]
    os.truncate(last, last.stat().st_size + 70_000)
    return last


def test_room_behind_the_last_batch_is_a_note_after_a_kill(killed: Path) -> None:
    last = add_room(killed)
    report = checked(killed)
    assert told(report) == [("note", f"{TP}/{last.name}")]
    assert report.findings[0].what == "70000 reserved bytes follow the last batch"


def test_room_behind_the_last_batch_is_damage_after_an_end_in_order(closed: Path) -> None:
    add_room(closed)
    assert checked(closed).damaged


@pytest.mark.parametrize("which", [0, -1])
def test_a_kill_soon_after_a_start_is_no_damage(killed: Path, tmp_path: Path, which: int) -> None:
    """L2: recovery cuts the indexes of what it scans and notes it anew; that waits in memory when the kill comes."""
    logs = LogManager.open(killed)
    log = logs.create(TP, TOPIC_ID, SMALL)
    segment = list(log.segments)[which]
    segment.seal()
    segment.rewind(0, segment.base_offset, segment.base_offset)
    shutil.copytree(killed, tmp_path / "again")
    logs.close()
    again = tmp_path / "again"
    assert (again / str(TP) / segment.names[".index"]).stat().st_size == 0
    report = checked(again)
    assert told(report) == [("note", f"{TP}/{segment.names['.seal']}")]
    (again / CLEAN_SHUTDOWN).write_bytes(b"")
    assert checked(again).damaged, "a stop in order does not leave that"


def test_a_bad_batch_is_named_with_file_byte_and_offset(closed: Path) -> None:
    path = closed / LOG
    data = bytearray(path.read_bytes())
    second = int.from_bytes(data[8:12], "big") + 12
    data[second + 80] ^= 1
    path.write_bytes(data)
    (finding,) = checked(closed).findings
    assert (finding.level, finding.file, finding.position, finding.offset) == (Level.DAMAGE, LOG, second, 3)
    assert "CRC-32C" in finding.what
    assert "restore" in finding.meaning


def test_a_missing_segment_is_a_gap(closed: Path) -> None:
    """L1: only compaction leaves gaps."""
    middle = sorted((closed / str(TP)).glob("*.log"))[1]
    for path in middle.parent.glob(f"{middle.stem}.*"):
        if path.suffix != ".snapshot":
            path.unlink()
    report = checked(closed)
    assert report.damaged
    assert any("the next segment begins at" in finding.what for finding in report.findings)


def test_what_others_left_is_a_warning_and_what_a_crash_left_a_note(closed: Path) -> None:
    (closed / "notes.txt").write_text("hello")
    (closed / str(TP) / f"{0:020d}.log.cleaned").write_bytes(b"")
    (closed / str(TP) / f"{99:020d}.index").write_bytes(b"")
    (closed / str(TP) / f"{3:020d}.log.deleted").write_bytes(b"")
    (closed / "orders-7.0123-stray").mkdir()
    (closed / "orders-7.0123.1-delete").mkdir()
    report = checked(closed)
    assert not report.damaged
    assert sorted(told(report)) == [
        ("note", f"{TP}/{0:020d}.log.cleaned"),
        ("note", f"{TP}/{3:020d}.log.deleted"),
        ("note", f"{TP}/{99:020d}.index"),
        ("note", "orders-7.0123.1-delete"),
        ("warning", "notes.txt"),
        ("warning", "orders-7.0123-stray"),
    ]


def test_a_kill_between_two_steps_of_a_compaction_is_no_damage(tmp_path: Path) -> None:
    """L4: from the moment the new segment counts, it is what is looked at; what it replaces is half gone."""
    logs = LogManager.open(tmp_path / "data")
    log = logs.create(TP, TOPIC_ID, COMPACT)
    for number in range(60):
        transact_keyed(log, 7, 0, 2 * number, (f"k{number % 3}", "v"), ("gone", None))
        end(log, 7, 0, commit=number % 3 == 0)
    log.roll(NOW_MS)
    settle(log)
    logs.write_checkpoints()
    logs.kept.note_cleaned(log.tp, 1)  # without the metadata, what says that it is compacted
    _, steps = begin(log)
    answer: object = None
    between = 0
    with contextlib.suppress(StopIteration):
        while True:
            work = steps.send(answer)
            answer = work.run() if isinstance(work, Offload) else None
            half_done = {path.suffix for path in (tmp_path / "data" / str(TP)).iterdir()} & {".cleaned", ".swap"}
            if half_done:
                report = checked(shutil.copytree(tmp_path / "data", tmp_path / "copy"))
                assert not report.damaged, [str(finding) for finding in report.findings]
                shutil.rmtree(tmp_path / "copy")
                between += ".swap" in half_done
    assert between > 1
    logs.close()


def test_a_compacted_log_has_gaps_and_nothing_is_wrong_with_it(tmp_path: Path) -> None:
    """L4, KIP-534: gaps, empty batches, delete horizons and dropped aborts are as they should be; a flip is not."""
    logs = LogManager.open(tmp_path / "data")
    log = logs.create(TP, TOPIC_ID, COMPACT)
    for number in range(30):
        transact_keyed(log, 7, 0, 2 * number, (f"k{number % 3}", "v"), ("gone", None))
        end(log, 7, 0, commit=number % 3 == 0)
        put(log, ("k", f"v{number}"))
    settle(log)
    done = clean(log)
    logs.kept.note_cleaned(log.tp, done.cleaned_to)
    put(log, ("k", "after"))
    settle(log)
    clean(log, done.cleaned_to, NOW_MS + 2 * HOUR_MS)
    transact_keyed(log, 8, 0, 0, ("open", "v"))
    settle(log)
    logs.close()
    report = checked(tmp_path / "data")
    assert not report.findings, [str(finding) for finding in report.findings]
    assert report.batches
    for path in sorted((tmp_path / "data" / str(TP)).glob("*.log")):
        data = bytearray(path.read_bytes())
        if not data:
            continue
        data[-1] ^= 1
        path.write_bytes(data)
        assert checked(tmp_path / "data").damaged
        data[-1] ^= 1
        path.write_bytes(data)


def test_loss_that_is_accepted_is_cut_once(closed: Path) -> None:
    """The operator's way out: the log ends before the damage, and the next starts know of nothing else."""
    path = sorted((closed / str(TP)).glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    del data[10:]
    path.write_bytes(data)
    assert checked(closed).damaged
    logs = LogManager.open(closed)
    with pytest.raises(CorruptLogFile):
        logs.get(TP)
    logs.close()
    (closed / str(TP) / ACCEPT_LOSS).touch()
    for start in range(2):
        logs = LogManager.open(closed)
        log = logs.get(TP)
        assert log is not None
        assert log.log_end_offset == int(path.stem), start
        logs.close()
    assert not (closed / str(TP) / ACCEPT_LOSS).exists()
    assert not checked(closed).damaged


def test_one_partition_can_be_asked_for(closed: Path) -> None:
    assert len(checked(closed, topic=TP.topic, partition=TP.partition).partitions) == 1
    with pytest.raises(LookupError):
        verify(closed, Report(), topic="other")


def test_nothing_is_written(closed: Path) -> None:
    def state(directory: Path) -> dict[Path, tuple[bytes, int]]:
        return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in directory.rglob("*") if p.is_file()}

    before = state(closed)
    checked(closed)
    assert state(closed) == before
