"""Worlds of one share group: answers that are lost, members that come and go, crashes, power cuts and failing disks.

The rules are those of KIP-932 in tests/kit/share_check.py. A broker made wrong on purpose is found.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
import trio

from fencepost.broker.share.change import Change
from fencepost.broker.share.in_flight import InFlightState
from fencepost.broker.share.led import LedPartition
from fencepost.coordinator.share.service import ShareStates
from fencepost.coordinator.share.values import Outcome, ShareKey, StateUpdate
from fencepost.protocol.errors import ErrorCode
from tests.kit.share_planted import PLANTED, PLANTED_IN_WORLDS
from tests.simulation.share_world import run_share_world

SEEDS = int(os.environ.get("FENCEPOST_SHARE_SEEDS", "20"))


@pytest.mark.timeout(3600)
def test_no_rule_is_broken_in_any_of_these_worlds_i8() -> None:
    """KIP-932; in a process of its own: a seed is the same world only under the hash seed that it sets."""
    command = [sys.executable, "-m", "tests.simulation.share_world", "--seeds", str(SEEDS)]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "0"})
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{SEEDS} worlds, 0 wrong" in run.stdout


def test_two_runs_of_one_seed_are_the_same_world() -> None:
    one, other = run_share_world(5), run_share_world(5)
    assert one.produced > 10
    assert one == other
    assert run_share_world(6).trace != one.trace


@pytest.mark.parametrize(
    "planted", sorted({"answer_before_stored", "skip_released", *PLANTED_IN_WORLDS} - {"answer_behind_the_start"})
)
def test_planted_faults_are_found(monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    for name in ("read", "write", "marker_appended", "complete_transaction"):
        monkeypatch.setattr(ShareStates, name, getattr(ShareStates, name))  # put back afterwards
    monkeypatch.setattr(InFlightState, "pend", InFlightState.pend)
    plant, found = (PLANTED | PLANTED_IN_WORLDS)[planted]
    plant()
    assert any(found in one for seed in range(100) for one in run_share_world(seed).broken)


@pytest.mark.parametrize("planted", [False, True])
def test_a_share_coordinator_that_stores_nothing_until_the_next_start(
    monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    """As with a log that is offline. What was answered NONE holds; a broker that answers it too early is found."""
    write = ShareStates.write
    failed: set[ShareStates] = set()

    async def refusing(self: ShareStates, updates: Sequence[tuple[ShareKey, StateUpdate]]) -> list[Outcome]:
        if not failed and trio.current_time() > 2.0:
            failed.add(self)
        if self not in failed:
            return await write(self, updates)
        await trio.lowlevel.checkpoint()
        return [Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE)] * len(updates)

    monkeypatch.setattr(ShareStates, "write", refusing)
    monkeypatch.setattr(Change, "skipped", Change.skipped)
    monkeypatch.setattr(LedPartition, "can_deliver", LedPartition.can_deliver)
    plant, found = PLANTED_IN_WORLDS["answer_behind_the_start"]
    if planted:
        plant()
    broken = []
    for seed in range(4):
        failed.clear()
        broken += run_share_world(seed).broken
    assert any(one.startswith(found) for one in broken) is planted
    assert planted or all(one.startswith(("the delivery count fell", "stuck", "lost")) for one in broken), broken


def test_an_unexpected_error_of_the_store_leaves_no_request_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share partition is begun anew after it, and those that waited are refused: nothing is lost or stuck.

    It forgets deliveries and locks, as after a crash.
    """
    write, calls = ShareStates.write, 0

    async def failing(self: ShareStates, updates: Sequence[tuple[ShareKey, StateUpdate]]) -> list[Outcome]:
        nonlocal calls
        calls += 1
        if calls % 5 == 3:
            raise RuntimeError("planted")
        return await write(self, updates)

    monkeypatch.setattr(ShareStates, "write", failing)
    broken = run_share_world(2).broken
    assert [one for one in broken if not one.startswith(("the delivery count fell", "with two members"))] == []
    assert calls > 5


def test_a_broker_that_ends_in_the_middle_of_a_fetch_ends_without_an_error() -> None:
    """The connection ends after the tasks that store: its release is not stored, and the records come again."""
    assert run_share_world(1094).broken == []
