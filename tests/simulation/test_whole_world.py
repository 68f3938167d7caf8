"""Whole worlds: no rule is broken in hundreds of them, the known hazard of TV1 is found, and a seed is one world."""

import os
import re
import subprocess
import sys

import pytest

from tests.simulation.story import SCENARIOS, parse, tell, written
from tests.simulation.whole_world import run_world

SEEDS = int(os.environ.get("FENCEPOST_SEEDS", "120"))
HAZARD = (
    "records of a transaction that was not committed are delivered",
    "delivered more than once",  # the transaction that was ended too early is done again
    "torn",
    "not there completely",
)


def simulate(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command, in a process of its own: a seed is the same world only under the hash seed that it sets."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "0"})


@pytest.mark.timeout(1800)
def test_no_rule_is_broken_in_any_of_these_worlds() -> None:
    """Rows T1-T16, P1-P6, I1-I7 under delay, loss, repetition, freezes, kills, power cuts and failed flushes."""
    run = simulate("--seeds", str(SEEDS))
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{SEEDS}/{SEEDS} worlds, 0 wrong" in run.stderr


@pytest.mark.timeout(900)
def test_the_hazard_of_the_first_protocol_is_found_when_everybody_speaks_it() -> None:
    """KAFKA-17754: a late EndTxn ends the next transaction. A search that cannot find this would find nothing."""
    run = simulate("--tv1", "--first", "45", "--seeds", "200", "--keep-going", "--stop-after", "1")
    assert run.returncode == 1, run.stderr
    assert any(form in run.stdout for form in HAZARD), run.stdout
    seed = re.search(r"see it again: python -m tests.simulation --first (\d+)", run.stdout)
    assert seed is not None, run.stdout
    spared = simulate("--tv1", "--first", seed[1], "--seeds", "1", "--never-late", "EndTxn")
    assert spared.returncode == 0, f"that was not the late EndTxn: {spared.stdout}"


def test_nothing_but_late_end_txns_goes_wrong_in_the_first_protocol() -> None:
    """The worlds that the hazard spoils, and others, are well once an EndTxn that was held back or repeated is lost."""
    run = simulate("--tv1", "--seeds", "40", "--never-late", "EndTxn")
    assert run.returncode == 0, run.stdout


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("spoilt", "first", "finding"),
    [
        ("answer-before-the-flush", 110, ("its coordinator by", "went back", *HAZARD)),
        ("positions-survive-an-abort", 0, ("the output is not the input", "by replay from zero")),
        ("batches-unverified", 0, ("the programs do not end", "at the end, all faults long over")),
        ("no-timeouts", 45, ("is Ongoing since",)),
    ],
)
def test_a_broker_that_is_wrong_on_purpose_is_found(spoilt: str, first: int, finding: tuple[str, ...]) -> None:
    """One thing made wrong (`tests/simulation/spoilt.py`), and the worlds of 200 seeds say so (T7, T8, T10, T16);
    where nothing is made wrong, none of them says anything. `first` is shortly before the first seed that shows it.
    """
    run = simulate("--spoilt", spoilt, "--first", str(first), "--seeds", "200", "--keep-going", "--stop-after", "1")
    assert run.returncode == 1, run.stderr
    assert any(one in run.stdout for one in finding), run.stdout
    assert f"--spoilt {spoilt}" in run.stdout


def test_two_runs_of_one_seed_are_the_same_world() -> None:
    """Trace by trace, clock tick by clock tick; here under whatever hash seed this process has."""
    one, other = run_world(3), run_world(3)
    assert len(one.trace) > 50
    assert one.trace == other.trace
    assert (one.seconds, one.requests, one.raw, one.live) == (other.seconds, other.requests, other.raw, other.live)
    assert run_world(4).trace != one.trace


def test_two_processes_see_the_same_world() -> None:
    """What a failing seed prints is enough to see it again, also where fencepost's own client takes part."""
    one, other = (simulate("--first", "21", "--seeds", "1", "--jobs", "1", "--trace") for _ in range(2))
    assert one.returncode == 0, one.stdout
    trace = [line for line in one.stdout.splitlines() if line[:9].strip().replace(".", "").isdigit()]
    assert len(trace) > 20
    assert any(" own.1: transaction" in line for line in trace)
    assert any(" copier.1: a copy" in line for line in trace)
    assert trace == [line for line in other.stdout.splitlines() if line[:9].strip().replace(".", "").isdigit()]


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_story_says_what_is_written_down(path: object) -> None:
    """To put down what it says now: `python -m tests.simulation.story --rewrite`."""
    text = path.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert written(tell(parse(text))) == text
