"""Brokers of several cores: no rule is broken in any of these worlds, and defects made on purpose are found."""

import os
import subprocess
import sys

import pytest

from tests.simulation.cores_world import run_world

SEEDS = int(os.environ.get("FENCEPOST_CORES_SEEDS", "24"))


def simulate(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command, in a process of its own, with the hash seed that it sets."""
    command = [sys.executable, "-m", "tests.simulation.cores_world", "--jobs", "2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.timeout(900)
def test_no_rule_is_broken_in_any_of_these_worlds() -> None:
    """KIP-98 over cores (rows T7, T8, T13, T14): markers lost, late and doubled, and cores killed between a durable
    Prepare record and its markers. Each answered commit is whole, and nothing is stuck. In half of the worlds
    partitions move (KIP-455), and cores die amid that."""
    run = simulate("--seeds", str(SEEDS))
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"0 of {SEEDS} worlds went wrong" in run.stdout


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("spoilt", "first", "finding"),
    [
        ("markers-before-the-decision", 56, "its coordinator by"),
        ("epoch-stays", 7, "that was not committed are delivered"),
        ("old-coordinators-write", 7, "that was not committed are delivered"),
        ("any-epoch-ends", 3, "is not there completely"),
        ("lost-markers-forgotten", 1, "waits for its marker"),
        ("answer-before-the-markers", 0, "waits for its marker"),
        ("answer-before-the-flush", 17, "a transaction is torn"),
        ("batches-unverified", 0, "waits for its marker"),
        ("empty-log-begun", 2, "OFFSET_OUT_OF_RANGE"),
        ("leader-epoch-stays", 2, "in the leader epoch 0"),
        ("old-leader-takes-markers", 28, "is not there completely"),
        ("names-unsynced", 13, "two brokers lead"),
        ("start-stays", 4, "waits for its marker"),
        ("end-unfenced", 54, "is Ongoing since"),
        ("offsets-dropped-early", 1237, "moved-offsets"),
    ],
)
def test_a_core_with_a_defect_is_found(spoilt: str, first: int, finding: str) -> None:
    """`first` is a seed that shows it today; 100 seeds without a finding would be a search that finds nothing."""
    run = simulate("--spoilt", spoilt, "--first", str(first), "--seeds", "100", "--until", finding)
    assert run.returncode == 1, run.stderr
    assert finding in run.stdout, run.stdout


def test_two_runs_of_one_seed_are_the_same_world() -> None:
    one, other = run_world(3), run_world(3)
    assert len(one.trace) > 20
    assert one.trace == other.trace
