"""The directions in which the rooms may import each other, as import-linter reads them from pyproject.toml."""

import re
import subprocess
import sys
import tomllib

from tests.architecture.project_files import ROOT

LAYERS = {
    "protocol": set(),
    "coordinator": {"protocol"},
    "broker": {"protocol", "coordinator"},
    "client": {"protocol"},
    "spark_connector": {"protocol", "client"},
    "spark_pipelines": {"protocol", "client", "coordinator", "broker", "spark_connector"},
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
            if contract.get("source_modules") == [f"fencepost.{room}"]
            for name in contract["forbidden_modules"]
            if name.startswith("fencepost.")
        }
        assert forbidden == rooms - allowed - {room}, room


def test_no_contract_is_broken() -> None:
    """In a process of its own: import-linter's logging set-up disables every logger that exists, for later tests."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    arguments = [sys.executable, "-c", program, "--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    run = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, re.sub(r"[╔╗╚╝║═╦╩╣╠╬│▶◀▲─┐┘└┬┤├]+", "", run.stdout + run.stderr)
