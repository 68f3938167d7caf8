"""The commit protocol holds in small scopes, and TLC refutes it without any of its rules (docs/models)."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.java.jars import Unavailable
from tests.kit.java import skip_or_fail
from tests.models.scopes import CONTROLS, LARGE, REDUNDANT, SMALL, Control, constants
from tests.models.tlc import MODELS, Verdict, check, configuration

TIMEOUT_S = 400


def checked(directory: Path, scope: str, without: Sequence[str] = ()) -> Verdict:
    try:
        return check(constants(scope, tuple(without)), directory, TIMEOUT_S)
    except Unavailable as missing:
        skip_or_fail(missing)


@pytest.mark.parametrize("scope", SMALL)
def test_the_protocol_holds(scope: str, tmp_path: Path) -> None:
    verdict = checked(tmp_path, scope)
    assert verdict.violated is None, verdict.output
    assert verdict.states > 1000, "the scope is too small to show anything"


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: " and ".join(control.rules))
def test_without_a_rule_it_does_not_hold(control: Control, tmp_path: Path) -> None:
    assert checked(tmp_path, control.scope, control.rules).violated == control.violated


def test_the_sequence_number_is_redundant(tmp_path: Path) -> None:
    """It is kept: it costs nothing, and it tells a new session whether the last commit happened."""
    assert checked(tmp_path, REDUNDANT.scope, REDUNDANT.rules).violated is None


def test_each_rule_has_a_control() -> None:
    rules = {line.split(" = ")[0].strip() for line in configuration({}).splitlines() if line.endswith("Rule = TRUE")}
    assert rules == {rule for control in CONTROLS for rule in control.rules}


def test_the_documentation_has_every_scope_and_rule() -> None:
    text = (MODELS.parent / "models.md").read_text(encoding="utf-8")
    rules = {rule for control in CONTROLS for rule in control.rules}
    assert [name for name in (*SMALL, *LARGE, *rules) if f"`{name}`" not in text] == []
