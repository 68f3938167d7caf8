"""Worlds of one consumer group: members that freeze, die, come back and lose answers, a broker that is killed.

No partition is owned by two members at once, committed offsets never go back, a zombie's commit is refused (rows G1 to
G3, G6, T5, T6). A broker made wrong on purpose is found.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fencepost.coordinator.group import classic, commit, join, rebalance
from fencepost.coordinator.group.decision import DecisionBuilder
from fencepost.coordinator.group.timers import SetTimer, TimerKind
from fencepost.coordinator.runtime.shard import Shard
from fencepost.protocol.errors import ErrorCode
from tests.simulation.group_world import run_group_world
from tests.simulation.spoilt_offsets import positions_are_told_while_a_transaction_decides, some_offsets_are_not_stored

SEEDS = int(os.environ.get("FENCEPOST_GROUP_SEEDS", "150"))
Spoil = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.timeout(900)
def test_no_rule_is_broken_in_any_of_these_worlds_g1_g2_g3_g6_t5_t6() -> None:
    """In a process of its own: a seed is the same world only under the hash seed that it sets."""
    command = [sys.executable, "-m", "tests.simulation.group_world", "--seeds", str(SEEDS)]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "0"})
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{SEEDS} worlds, 0 wrong" in run.stdout


def test_two_runs_of_one_seed_are_the_same_world() -> None:
    one, other = run_group_world(5), run_group_world(5)
    assert len(one.trace) > 10
    assert one == other
    assert run_group_world(6).trace != one.trace


def anybody_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "check_commit", lambda *_args, **_more: ErrorCode.NONE)


def sessions_end_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(self: DecisionBuilder, member: Any) -> None:
        self.timers.append(SetTimer(TimerKind.SESSION, member.session_timeout_ms // 5, member.member_id))

    monkeypatch.setattr(DecisionBuilder, "session", session)


def everybody_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def assigned(group: Any, member_id: str) -> Any:
        reply = whole(group, member_id)
        return replace(reply, assignment=max((m.assignment for m in group.members.values()), key=len))

    whole = classic.assignment
    monkeypatch.setattr(classic, "assignment", assigned)


def answers_leave_before_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    async def settled(self: Any, ticket: Any) -> ErrorCode:
        return ErrorCode.NONE

    monkeypatch.setattr(Shard, "settled", settled)


def the_old_static_member_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic, "check_member", lambda *_args: ErrorCode.NONE)
    monkeypatch.setattr(join, "check_member", lambda *_args: ErrorCode.NONE)


def rebalances_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "rebalance_timeout_ms", lambda _members: 100)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("spoil", "first", "finding"),
    [
        (anybody_commits, 0, ("is acknowledged", "reads offset")),
        (sessions_end_early, 0, ("both own", "does not come to rest")),
        (everybody_gets_everything, 0, ("both own",)),
        (answers_leave_before_the_disk, 10, ("is acknowledged", "reads offset", "both own", "nobody tells")),
        (some_offsets_are_not_stored, 0, ("reads offset",)),
        (positions_are_told_while_a_transaction_decides, 160, ("reads offset",)),
        (the_old_static_member_stays, 0, ("is acknowledged", "reads offset", "both own", "does not come to rest")),
        (rebalances_end_at_once, 0, ("both own", "does not come to rest")),
    ],
)
def test_a_broker_that_is_wrong_on_purpose_is_found(
    monkeypatch: pytest.MonkeyPatch, spoil: Spoil, first: int, finding: tuple[str, ...]
) -> None:
    """Otherwise a search that finds nothing would prove nothing.

    `first` is shortly before the first seed that shows it.
    """
    spoil(monkeypatch)
    for seed in range(first, first + 1000):
        if broken := run_group_world(seed).broken:
            assert any(one in text for one in finding for text in broken), broken
            return
    pytest.fail("1000 worlds, and none of them says anything")
