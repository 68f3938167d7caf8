"""Markers between cores: the model holds for both transaction protocols, and TLC refutes it without any of its rules.

KIP-98: markers follow a durable decision, and the coordinator's epoch fences them.
KIP-890: each transaction has an epoch of its own.
"""

from pathlib import Path

import pytest

from tests.interop.java.jars import Unavailable
from tests.kit.java import skip_or_fail
from tests.models.scopes import CORES, CORES_CONTROLS, Control, constants
from tests.models.tlc import MODELS, Verdict, check, configuration

TIMEOUT_S = 400


def checked(directory: Path, scope: str, without: tuple[str, ...] = ()) -> Verdict:
    try:
        return check(constants(scope, without), directory, TIMEOUT_S, model="cores")
    except Unavailable as missing:
        skip_or_fail(missing)


@pytest.mark.parametrize("scope", sorted(CORES))
def test_markers_between_cores_are_safe(scope: str, tmp_path: Path) -> None:
    verdict = checked(tmp_path, scope)
    assert verdict.violated is None, verdict.output
    assert verdict.states > 1000, "the scope is too small to show anything"


@pytest.mark.parametrize("control", CORES_CONTROLS, ids=lambda control: " and ".join(control.rules))
def test_without_a_rule_they_are_not(control: Control, tmp_path: Path) -> None:
    assert checked(tmp_path, control.scope, control.rules).violated == control.violated


def test_each_rule_has_a_control_and_is_documented() -> None:
    text = configuration({}, "cores")
    rules = {line.split(" = ")[0].strip() for line in text.splitlines() if line.endswith("Rule = TRUE")}
    assert rules == {rule for control in CORES_CONTROLS for rule in control.rules}
    page = (MODELS.parent / "models.md").read_text(encoding="utf-8")
    assert [name for name in (*CORES, *rules) if f"`{name}`" not in page] == []
