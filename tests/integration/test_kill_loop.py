"""Kill -9 in a loop under load on one data directory; the long form is `python -m tests.kit.kill_loop --cycles 200`."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from struct import pack_into

import pytest

from tests.kit.history import Journal
from tests.kit.kill_check import FilesWatch, read_files, trimmed_problems
from tests.kit.segment_files import Damaged, batches_of, read_log
from tests.kit.wire import batch_of

ROOT = Path(__file__).resolve().parents[2]
RUN_TIMEOUT_SECONDS = 400
PLACE = ("in", 0)


@pytest.mark.timeout(RUN_TIMEOUT_SECONDS + 10)
def test_nothing_acknowledged_is_lost_over_many_kills(tmp_path: Path) -> None:
    """L2, P3, P9, I1 to I3, T7 under load: idempotent, transactional and raw producers, judged out of the files."""
    command = [sys.executable, "-m", "tests.kit.kill_loop", "--cycles", "10", "--seed", "ci"]
    command += ["--longest-life-ms", "700", "--directory"]
    run = subprocess.Popen(
        [*command, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = run.communicate(timeout=RUN_TIMEOUT_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)  # whatever it has left behind
        run.wait()
    assert run.returncode == 0, said


# The judge itself


def stored(offset: int, *values: bytes, **header: object) -> bytearray:
    """A batch as it stands in a file."""
    data = batch_of(*values, **header)  # type: ignore[arg-type]
    pack_into(">q", data, 0, offset)
    return data


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A directory with two batches of the loose topic."""
    directory = tmp_path / "data" / "in-0"
    directory.mkdir(parents=True)
    (tmp_path / "writers").mkdir()
    (directory / f"{0:020}.log").write_bytes(stored(0, b"a", b"b") + stored(2, b"c"))
    return directory


def test_the_judge_sees_what_is_missing(partition: Path, tmp_path: Path) -> None:
    """An acknowledged record that does not stand at its offset, at once and at the next look."""
    watch = FilesWatch(tmp_path / "data", tmp_path / "writers")
    journal = Journal(tmp_path / "writers" / "one.jsonl")
    for value, offset in (("a", 0), ("b", 7), ("lost", 3)):
        journal.write("send", None, *PLACE, value)
        journal.write("ack", value, 0, offset)
    first = watch.look([PLACE])
    assert [problem.split()[1] for problem in first] == ["b", "lost"]
    assert watch.look([PLACE]) == []
    with (partition / f"{0:020}.log").open("ab") as file:
        file.write(stored(4, b"d"))
    assert "offset 4 instead of 3" in watch.look([PLACE])[0]


def test_the_judge_forgives_a_torn_end_and_nothing_else(partition: Path, tmp_path: Path) -> None:
    watch = FilesWatch(tmp_path / "data", tmp_path / "writers")
    log = partition / f"{0:020}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + stored(3, b"d")[:40])
    assert watch.look([PLACE]) == []
    assert read_files(tmp_path / "data", [PLACE])[1], "after a start it must be gone"
    log.write_bytes(whole)
    (partition / f"{3:020}.log").write_bytes(stored(3, b"a"))
    assert "a for the second time" in watch.look([PLACE])[0]


def test_the_judge_sees_what_is_undecided_or_damaged(partition: Path, tmp_path: Path) -> None:
    log = partition / f"{0:020}.log"
    with log.open("ab") as file:
        file.write(stored(3, b"t", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True))
    assert "LSO 3, end 4" in read_files(tmp_path / "data", [PLACE])[1][0]
    assert read_log(batches_of(partition)).open.keys() == {9}
    data = bytearray(log.read_bytes())
    data[65] ^= 1
    log.write_bytes(data)
    with pytest.raises(Damaged, match="wrong CRC"):
        list(batches_of(partition))


@pytest.mark.parametrize("compacted", [True, False])
def test_the_judge_sees_what_should_not_be_gone(partition: Path, tmp_path: Path, compacted: bool) -> None:
    """Only what a later record of its key replaces, or what lies before the log's start, may be gone."""
    journal = Journal(tmp_path / "trimmed.jsonl")
    for offset, value in enumerate("abcd"):
        journal.write("send", None, *PLACE, value)
        journal.write("ack", value, 0, offset)
    problems = trimmed_problems(partition, [tmp_path / "trimmed.jsonl"], compacted=compacted)
    assert problems == ["d: acknowledged at 3, found at None"]
