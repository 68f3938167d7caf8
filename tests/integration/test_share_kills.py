"""Kill -9 under members of a share group; the long form is `python -m tests.kit.share_kills --cycles 300`."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.history import Journal
from tests.kit.share_check import ACCEPT, RELEASE, Story, judge
from tests.kit.share_planted import PLANTED

ROOT = Path(__file__).resolve().parents[2]
RUN_TIMEOUT_SECONDS = 200
LONG = bool(os.environ.get("FENCEPOST_LONG"))


def play(directory: Path, *words: str) -> tuple[int, str]:
    """The exit code of a run, and what it said."""
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.kit.share_kills", "--seed", "ci", "--directory", str(directory), *words],
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
    return run.returncode, said


@pytest.mark.timeout(RUN_TIMEOUT_SECONDS + 10)
def test_no_record_is_lost_doubled_or_stuck_over_kills(tmp_path: Path) -> None:
    """I8, KIP-932 under load: the rules are those of tests/kit/share_check.py."""
    code, said = play(tmp_path, "--cycles", "4", "--longest-life-ms", "700")
    assert code == 0, said


@pytest.mark.timeout(RUN_TIMEOUT_SECONDS + 10)
@pytest.mark.skipif(not LONG, reason="takes a minute: FENCEPOST_LONG=1 runs it; the judge's own tests are below")
@pytest.mark.parametrize("planted", sorted(PLANTED))
def test_planted_faults_are_found(tmp_path: Path, planted: str) -> None:
    code, said = play(tmp_path, "--cycles", "2", "--longest-life-ms", "900", "--planted", planted)
    assert code == 1, said
    assert PLANTED[planted][1] in said


# The judge itself


def verdict_of(tmp_path: Path, **journals: list[tuple[object, ...]]) -> list[str]:
    """The names of the rules that these journals break."""
    for name, events in journals.items():
        journal = Journal(tmp_path / f"{name}.jsonl")
        for event in events:
            journal.write(*event)
    story = Story(lock_s=1.0, count_limit=5).read(sorted(tmp_path.glob("*.jsonl")))
    return [one.partition(":")[0] for one in judge(story).violations]


def got(at: float, count: int = 1, value: str = "v") -> tuple[object, ...]:
    """A delivery of the one record of these tests that took 10 ms."""
    return "got", 0, 7, value, count, at, at + 0.01


PRODUCED = [("ack", "v", 0, 7)]


def answered(kind: int, at: float) -> list[tuple[object, ...]]:
    return [("ask", 0, 7, kind, at), ("answered", 0, 7, kind, 0, at + 0.01)]


def test_the_judge_is_content(tmp_path: Path) -> None:
    """A crash may forget a delivery that was not ended; a release makes room for others; an old fetch may be late."""
    one = [got(1.0), *answered(RELEASE, 1.2)]
    two = [got(1.5, 2), got(2.0, 2), *answered(ACCEPT, 2.1)]
    assert verdict_of(tmp_path, p=PRODUCED, one=one, two=two, run=[("broker killed", 1.7)]) == []


@pytest.mark.parametrize(
    ("one", "two", "found"),
    [
        ([], [], ["lost"]),
        ([got(1.0)], [], ["lost"]),
        ([got(1.0), *answered(ACCEPT, 1.1)], [got(2.5, 2)], ["delivered again"]),
        ([got(1.0)], [got(1.5, 2), *answered(ACCEPT, 1.6)], ["with two members"]),
        ([got(1.0)], [got(2.5, 1), *answered(ACCEPT, 2.6)], ["the delivery count fell"]),
        ([got(1.0), *answered(RELEASE, 1.1)], [got(1.5, 1), *answered(ACCEPT, 1.6)], ["the delivery count fell"]),
        ([got(1.0, value="w"), *answered(ACCEPT, 1.1)], [], ["another record"]),
        (
            [got(1.0), ("hold", 0, 7, 4.1), *answered(RELEASE, 1.1)],
            [got(3.9, 2), *answered(ACCEPT, 4.0)],
            ["before its time"],
        ),
    ],
)
def test_the_judge_finds(
    tmp_path: Path, one: list[tuple[object, ...]], two: list[tuple[object, ...]], found: list[str]
) -> None:
    assert verdict_of(tmp_path, p=PRODUCED, one=one, two=two) == found


def test_the_judge_knows_when_a_record_may_come(tmp_path: Path) -> None:
    """A release that was not answered may not be stored, and a later one without a delay holds nothing back."""
    one = [got(1.0), ("hold", 0, 7, 4.1), ("ask", 0, 7, RELEASE, 1.1), got(2.5, 2), *answered(RELEASE, 2.6)]
    assert verdict_of(tmp_path, p=PRODUCED, one=one, two=[got(2.7, 3), *answered(ACCEPT, 2.8)]) == []


def test_the_judge_knows_what_a_release_has_stored(tmp_path: Path) -> None:
    """Also over a crash: a release that was answered is stored with its count."""
    one = [got(1.0, 2), *answered(RELEASE, 1.1)]
    two = [got(1.5, 2), *answered(ACCEPT, 1.6)]
    run = [("broker killed", 1.3)]
    assert verdict_of(tmp_path, p=PRODUCED, one=one, two=two, run=run) == ["the delivery count fell"]
