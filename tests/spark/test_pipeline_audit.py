"""The exactly-once audit finds each fault in a spoilt data directory, and none in a sound one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from fencepost.protocol.batch_header import set_producer
from fencepost.spark_pipelines import PipelineError, audit
from fencepost.spark_pipelines.auditing.findings import PartitionReport, Rule
from fencepost.spark_pipelines.auditing.picture import html
from tests.conftest import StartBroker
from tests.kit import damage
from tests.kit.stores import needs_files
from tests.spark.conftest import WAIT_SECONDS, new_producer, new_topic, transactions_of
from tests.spark.spoilt_logs import TakenApart, spoilt

SPOILT = "orders-1"


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data directory closed in order, and what kill -9 would have left of it."""
    work = tmp_path_factory.mktemp("audited")
    sound, crashed = work / "sound", work / "crashed"
    sound.mkdir()
    trio.run(damage.make, sound, crashed)
    return sound, crashed


def one(report: Any, name: str) -> PartitionReport:
    (found,) = [part for part in report.partitions if part.name == name]
    assert isinstance(found, PartitionReport)
    return found


def rules_broken(report: Any) -> set[str]:
    return {fault.rule for part in report.partitions for fault in part.faults}


@pytest.mark.parametrize("which", [0, 1], ids=["closed", "crashed"])
def test_a_sound_directory_has_no_fault_and_every_record_is_accounted_for(
    directories: tuple[Path, Path], which: int
) -> None:
    """Eight transactions of four records and eight plain batches of two in each partition; half of them aborted."""
    report = audit(directories=[directories[which]])
    assert report.sound, rules_broken(report)
    assert [part.name for part in report.partitions] == ["orders-0", "orders-1", "orders-2"]
    for part in report.partitions:
        assert (part.aborted, part.commits, part.aborts) == (16, 4, 4)
        markers_and_records = part.committed + part.aborted + part.open_records + part.markers
        assert markers_and_records == part.end - part.start, "dense: each offset is a record or a marker"
        assert sum(sum(cell.values()) for cell in part.strip) == part.end
    first = one(report, "orders-0")
    assert (first.committed, first.open_records, first.last_stable_offset) == (34, 2, 56)
    (left,) = first.open
    assert left.first_offset == 56
    assert "tx-open, Ongoing" in left.why
    assert "Exactly once: 98 committed records in 3 partitions" in report.verdict()


def twice_as_it_was(log: TakenApart) -> None:
    number = log.first("data", 3)
    log.batches.insert(number + 1, log.copy(number))


def written_twice(log: TakenApart) -> None:
    """What a broker without idempotence would have made of a retry."""
    number = log.first("data", 3)
    log.batches.insert(number + 1, log.copy(number))
    log.renumber()


def commit_marker_cut_out(log: TakenApart) -> None:
    del log.batches[log.first("commit", 1)]


def abort_marker_never_written(log: TakenApart) -> None:
    number = log.first("abort", 1)
    marker = log.batches[number].header.base_offset
    del log.batches[number]
    log.entries = [entry for entry in log.entries if entry[3] != marker]
    log.renumber()


def abort_marker_cut_out(log: TakenApart) -> None:
    del log.batches[log.first("abort", 1)]


def batch_cut_out(log: TakenApart) -> None:
    del log.batches[log.first("plain", 2)]


def batch_never_written(log: TakenApart) -> None:
    """The first of a transaction: that its last is not there nobody could tell by sequences."""
    del log.batches[log.first("data", 4)]
    log.renumber()


def byte_flipped(log: TakenApart) -> None:
    log.batches[log.first("data", 2)].data[80] ^= 1


def abort_not_listed(log: TakenApart) -> None:
    del log.entries[1]


def listed_but_committed(log: TakenApart) -> None:
    number = log.first("commit", 1)
    marker, first = log.batches[number].header, log.batches[number - 1].header.base_offset - 4
    log.entries.append([0, marker.producer_id, first, marker.base_offset, marker.base_offset])


def end_cut_off(log: TakenApart) -> None:
    del log.batches[-2:]


def old_epoch_again(log: TakenApart) -> None:
    """A zombie that nobody fenced: it writes with the epoch that it had before its successor came."""
    number = log.first("data", 8)
    zombie = log.copy(number)
    known = zombie.header
    set_producer(zombie.data, 0, known.producer_id, known.producer_epoch - 1, known.base_sequence)
    log.batches.insert(number + 1, zombie)
    log.renumber()


@pytest.mark.parametrize(
    ("spoil", "expected", "says"),
    [
        (twice_as_it_was, {Rule.DENSE, Rule.ONCE}, "is here a second time; the first is at offset"),
        (written_twice, {Rule.ONCE}, "sequence 2 of producer"),
        (commit_marker_cut_out, {Rule.DENSE, Rule.CLOSED}, "has no marker, yet epoch"),
        (abort_marker_never_written, {Rule.CLOSED}, "has no marker, yet epoch"),
        (abort_marker_cut_out, {Rule.DENSE, Rule.CLOSED}, "but no marker aborts them"),
        (batch_cut_out, {Rule.DENSE}, "are missing, without an explanation"),
        (batch_never_written, {Rule.GAPLESS}, "where 0 was expected"),
        (byte_flipped, {Rule.WHOLE}, "the CRC-32C does not match"),
        (abort_not_listed, {Rule.INDEX}, "are aborted, but not in the list"),
        (listed_but_committed, {Rule.CLOSED}, "the list names aborted offsets"),
        (end_cut_off, {Rule.DENSE, Rule.CLOSED}, "offsets 53 to 55 are missing"),
        (old_epoch_again, {Rule.FENCED}, "it should have been fenced"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_fault_is_found_where_it_is(
    directories: tuple[Path, Path],
    tmp_path: Path,
    spoil: Callable[[TakenApart], None],
    expected: set[Rule],
    says: str,
) -> None:
    report = audit(directories=[spoilt(directories[0], tmp_path / "spoilt", SPOILT, spoil)])
    assert not report.sound
    assert {rule.value for rule in expected} <= rules_broken(report)
    part = one(report, SPOILT)
    assert [other.name for other in report.partitions if other.faults] == [SPOILT], "the others are as sound as before"
    assert any(says in fault.what for fault in part.faults), part.faults
    assert "NOT exactly once" in html(report)
    assert html(report).count('fill="#d62839"') >= len(part.faults)


def test_a_torn_end_is_what_a_crash_leaves_but_not_after_a_shutdown_in_order(
    directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """A start cuts off a bad batch above the recovery point, so it was never acknowledged; below, it is damage."""
    for which, faults in ((0, True), (1, False)):
        target = tmp_path / str(which)
        shutil.copytree(directories[which], target)
        last = max((target / SPOILT).glob("*.log"))
        with last.open("ab") as file:
            file.write(b"\x01" * 70)
        part = one(audit(directories=[target]), SPOILT)
        assert bool(part.faults) is faults, part.faults
        assert any("a crash damaged the log" in note for note in part.notes) is not faults


@needs_files("the audit reads it")
def test_what_can_not_be_audited_is_said_and_what_to_do(
    directories: tuple[Path, Path], start_broker: StartBroker
) -> None:
    with pytest.raises(PipelineError, match=r"there is no topic nothing in .*; there are: .*orders"):
        audit(["nothing"], directories=[directories[0]])
    with pytest.raises(PipelineError, match=r"is in .* and in .*: audit replicas one after the other"):
        audit(directories=list(directories))
    broker = start_broker(files=True)
    assert broker.data_dir is not None
    with pytest.raises(PipelineError, match=r"a broker runs on .*: stop it first"):
        audit(directories=[broker.data_dir])


def written(bootstrap: str, topic: str) -> Any:
    """Committed, aborted and plain records in three partitions, and a transaction that stays open."""
    write = transactions_of(bootstrap, topic)
    for number in range(6):
        write([(number % 3, b"%d" % n) for n in range(50)] + [(2, b"x")], commit=number % 3 != 2)
    left = new_producer(bootstrap)
    left.begin_transaction()
    left.produce(topic, b"open", partition=1)
    left.flush(WAIT_SECONDS)
    return left


@needs_files("the audit reads it")
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_running_broker_and_its_directory_give_one_report_by_spark_and_without(
    spark: Any, start_broker: StartBroker
) -> None:
    """Spark's tasks read pieces side by side; the report is the same as that of one process, and of the files."""
    broker = start_broker(files=True)
    topic = new_topic(broker.address, "audited")
    left = written(broker.address, topic)
    kafka = {"bootstrap.servers": broker.address}
    told: list[tuple[int, int]] = []
    by_spark = audit([topic], kafka=kafka, spark=spark, advance=lambda done, total: told.append((done, total)))
    here = audit([topic], kafka=kafka)
    assert by_spark.partitions == here.partitions
    assert by_spark.sound
    assert all(done <= total for done, total in told)
    assert (here.total("committed"), here.total("aborted"), here.total("open_records")) == (204, 102, 1)
    (open_one,) = one(here, "audited-1").open
    assert "Ongoing" in open_one.why
    assert broker.stop() == 0
    assert broker.data_dir is not None
    from_files = audit([topic], directories=[broker.data_dir], spark=spark)
    assert [(part.strip, part.open[:1], part.faults) for part in from_files.partitions] == [
        (part.strip, part.open[:1], part.faults) for part in here.partitions
    ]
    left.purge()
