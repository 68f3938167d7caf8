"""What `make test` plays again, and what it never does."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_look import worth_a_second_look

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("failed", "again"),
    [
        ([], False),
        (["tests/integration/test_life.py::test_a"], True),
        (["tests/integration/test_life.py::test_a", "tests/spark/test_x.py::test_b[1]"], True),
        ([f"tests/interop/test_x.py::test_{n}" for n in range(4)], False),
        (["tests/integration/test_life.py"], False),  # it could not be collected
        (["tests/integration/test_life.py::test_a", "tests/unit/test_x.py::test_b"], False),
        (["tests/simulation/test_whole_world.py::test_seed[3]"], False),
    ],
)
def test_few_of_real_processes_and_nothing_that_is_computed(failed: list[str], again: bool) -> None:
    assert worth_a_second_look(failed) is again


def played(where: Path, test: str) -> subprocess.CompletedProcess[str]:
    """A project of one test."""
    home = where / "tests" / "integration"
    home.mkdir(parents=True)
    (home / "test_one.py").write_text(test)
    options = ["-q", "-n", "1", "-p", "no:fencepost"]
    program = f"import os, sys; sys.path.insert(0, {str(ROOT)!r}); from tests.second_look import main; "
    program += f"os.chdir({str(where)!r}); sys.exit(main({options!r}))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100)


WAVERS = """
from pathlib import Path
def test_wavers():
    seen = Path({seen!r})
    first = not seen.exists()
    seen.touch()
    assert not first
"""


@pytest.mark.long
def test_what_wavers_is_named(tmp_path: Path) -> None:
    ran = played(tmp_path, WAVERS.format(seen=str(tmp_path / "seen")))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WAVERED" in ran.stdout
    assert ran.stdout.rstrip().endswith("tests/integration/test_one.py::test_wavers")


@pytest.mark.long
def test_what_fails_twice_fails(tmp_path: Path) -> None:
    ran = played(tmp_path, "def test_fails():\n    assert False\n")
    assert ran.returncode == 1
    assert "FAILED TWICE" in ran.stdout
