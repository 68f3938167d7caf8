"""The directions in which the rooms may import each other, as import-linter reads them from pyproject.toml."""

import re
import tomllib

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from tests.architecture.project_files import ROOT

LAYERS = {
    "protocol": set(),
    "coordinator": {"protocol"},
    "broker": {"protocol", "coordinator"},
    "client": {"protocol"},
    "spark_connector": {"protocol", "client"},
    "testing": {"protocol", "coordinator", "broker", "client"},
}


def test_every_room_is_bound_by_a_contract() -> None:
    """What a room may not import is everything that the drawing does not allow; a forgotten room would be free."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    rooms = set(LAYERS) | {"cli"}
    for room, allowed in LAYERS.items():
        forbidden = {
            name.removeprefix("fencepost.")
            for contract in contracts
            if contract["source_modules"] == [f"fencepost.{room}"]
            for name in contract["forbidden_modules"]
            if name.startswith("fencepost.")
        }
        assert forbidden == rooms - allowed - {room}, room


def test_no_contract_is_broken(capsys) -> None:
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, verbose=False)
    assert status == EXIT_STATUS_SUCCESS, re.sub(r"[╔╗╚╝║═╦╩╣╠╬│▶◀▲─┐┘└┬┤├]+", "", capsys.readouterr().out)
