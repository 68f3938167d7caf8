"""Clusters whose database goes back in time: nothing that is acknowledged afterwards is lost, doubled or torn."""

import os
import subprocess
import sys

import pytest

SEEDS = int(os.environ.get("FENCEPOST_BACK_SEEDS", "10"))


def simulate(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command, in a process of its own, with the hash seed that it sets."""
    command = [sys.executable, "-m", "tests.simulation.going_back", "--jobs", "2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.timeout(900)
def test_no_rule_is_broken_after_the_database_went_back() -> None:
    run = simulate("--seeds", str(SEEDS))
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"0 of {SEEDS} worlds went wrong" in run.stdout


@pytest.mark.timeout(900)
def test_brokers_that_do_not_look_for_losses_are_found() -> None:
    """The negative control: only the broker that lost its own commit notices."""
    run = simulate("--seeds", "4", "--unchecked")
    assert run.returncode == 1, run.stdout + run.stderr
