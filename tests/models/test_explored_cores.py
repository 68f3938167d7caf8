"""The real cores of two brokers keep the rules in every short run, and what breaks a rule on purpose is found."""

from collections.abc import Sequence

import pytest

from fencepost.broker.cluster.commit.rounds import Rounds
from fencepost.broker.cluster.engine import Append, Identity, Row
from fencepost.broker.log.late_appends import LateAppends
from tests.kit.sim_engine import SimEngine
from tests.kit.sim_tables import ObjectState
from tests.models.core_broker import Broker
from tests.models.core_rules import violations
from tests.models.core_world import Limits, World
from tests.models.explore import OPEN, SCOPES, Scope, explore
from tests.models.walks import walk

FEW = ("Q0", "Q1", "P1", "plain")
"""Words that the runs below do not need."""


@pytest.mark.parametrize("name", SCOPES)
def test_every_short_run_keeps_the_rules(name: str) -> None:
    result = explore(SCOPES[name])
    assert result.found is None
    assert result.states > 100, "the scope is too small to show anything"


def found(scope: Scope) -> str:
    result = explore(scope)
    assert result.found is not None, "nothing was found"
    return result.found.violations[0]


def test_commits_without_a_fence_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision of a coordinator that was taken over stands behind that of the new one."""
    monkeypatch.setattr(SimEngine, "_check_fence", lambda engine, identity: None)
    assert "is there twice" in found(Scope(5, OPEN, FEW, Limits(takeovers=1)))


def test_commits_of_an_old_session_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequence number prevents the second row; but then the broker stops for no reason."""

    def check(engine: SimEngine, identity: Identity) -> None:
        newest = engine.database.brokers[identity.broker]
        checked(engine, identity._replace(session=newest.session))

    checked = SimEngine._check_fence
    monkeypatch.setattr(SimEngine, "_check_fence", check)
    assert "was not taken over" in found(Scope(3, OPEN, FEW, Limits(faults=1)))


def test_appends_that_move_behind_their_own_producers_markers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_in_conflict(engine: SimEngine, append: Append, head: object) -> bool:
        return checked(engine, append._replace(row=append.row._replace(producer_ids=())), head)  # type: ignore[arg-type]

    checked = SimEngine._is_in_conflict
    monkeypatch.setattr(SimEngine, "_is_in_conflict", is_in_conflict)
    assert "a row has the offsets of its batches" in found(Scope(4, OPEN, FEW)), "the broker itself finds it"


def test_appends_that_are_not_checked_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def try_once(appends: LateAppends, append: object, again: bool) -> None:
        if again:
            appends._write(append, appends._stored.end_offset)  # type: ignore[arg-type]
        else:
            tried(appends, append, again)  # type: ignore[arg-type]

    tried = LateAppends._try
    monkeypatch.setattr(LateAppends, "_try", try_once)
    assert "comes after its end" in found(Scope(4, OPEN, FEW))


def test_logs_that_are_given_up_too_early_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "is_settled", lambda broker, tp: True)
    assert "appends have no result" in found(Scope(3, OPEN, ("Q0", "Q1", "P1"), Limits(handovers=1)))


def test_a_marker_in_a_log_that_is_given_up_too_early_is_found() -> None:
    """Its coordinator is the broker that gives the log up: the decision commits without the marker."""
    world = World(Limits(takeovers=1, handovers=1))
    for step in ("P0 A", "round A", "take B", "end B", "give0 B", "round B"):
        world.play(step)
    assert violations(world) == ["orders-0: 0 markers of transaction 0, which was decided 1 times"]


def test_rounds_that_commit_one_log_at_a_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(rounds: Rounds) -> object:
        if rounds._round is not None and not rounds._round.done:
            return []
        others = list(rounds._waiting)[1:]
        for log in others:
            rounds.forget(log)
        begun = checked(rounds)
        for log in others:
            rounds.enlist(log)
        return begun

    checked = Rounds.begin
    monkeypatch.setattr(Rounds, "begin", begin)
    assert "0 markers of transaction 0, which was decided 1 times" in found(Scope(3, OPEN, FEW))


def test_commits_that_do_not_check_their_claims_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The object is deleted, and stays marked."""

    def check(engine: SimEngine, claimed: Sequence[int], rows: Sequence[Row]) -> None:
        return None

    monkeypatch.setattr(SimEngine, "_check_objects", check)
    monkeypatch.setattr(SimEngine, "forget", lambda engine, objects: None)
    assert "which was deleted" in found(Scope(3, OPEN, FEW, Limits(faults=1), inline_bytes=0))


def test_claims_that_are_collected_without_a_mark_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their age alone."""

    def doomed(engine: SimEngine, idle_ms: int, limit: int = 1000) -> list[int]:
        return [number for number, row in engine.database.objects.items() if row.state == ObjectState.CLAIMED]

    monkeypatch.setattr(SimEngine, "doomed", doomed)
    monkeypatch.setattr(SimEngine, "forget", lambda engine, objects: None)
    assert "which was deleted" in found(Scope(3, OPEN, FEW, Limits(faults=1), inline_bytes=0))


def test_long_random_runs_keep_the_rules() -> None:
    assert [(one.seed, one.violations) for one in map(walk, range(100)) if one.violations] == []


def test_long_random_runs_find_a_cluster_without_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimEngine, "_check_fence", lambda engine, identity: None)
    assert any(walk(seed).violations for seed in range(50))
