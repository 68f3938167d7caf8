"""Whole clusters without a disk: no rule is broken in any of these worlds, and defects made on purpose are found."""

import os
import subprocess
import sys

import pytest

from tests.simulation.cluster_world import run_world

SEEDS = int(os.environ.get("FENCEPOST_CLUSTER_SEEDS", "24"))


def simulate(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command, in a process of its own, with the hash seed that it sets."""
    command = [sys.executable, "-m", "tests.simulation.cluster_world", "--jobs", "2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.timeout(900)
def test_no_rule_is_broken_in_any_of_these_worlds() -> None:
    """Takeovers, pauses, restarts, lost requests and unavailable stores: no acknowledged record is lost or doubled, and
    transactions are whole."""
    run = simulate("--seeds", str(SEEDS))
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"0 of {SEEDS} worlds went wrong" in run.stdout


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("spoilt", "first", "finding"),
    [("no-fence", 45, "by replay from zero"), ("answer-before-the-flush", 325, "by replay from zero")],
)
def test_a_cluster_with_a_defect_is_found(spoilt: str, first: int, finding: str) -> None:
    """`first` is shortly before the first seed that shows it; none of 200 would be a search that finds nothing."""
    run = simulate("--spoilt", spoilt, "--first", str(first), "--seeds", "200", "--until", finding, "--brokers", "2")
    assert run.returncode == 1, run.stderr
    assert finding in run.stdout, run.stdout


def test_two_runs_of_one_seed_are_the_same_world() -> None:
    one, other = run_world(3), run_world(3)
    assert len(one.trace) > 20
    assert one.trace == other.trace
