"""The rules of the house: where the rooms stand, how long a file may be, what a module says of itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.project_files import PYTHON_FILES, ROOT, name_of

ROOMS = ("broker", "client", "coordinator", "protocol", "spark_connector")
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
SHAPELESS_NAMES = {"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"}
HEAVY_MODULES = ("pyspark", "pyarrow", "numpy", "pandas", "matplotlib", "rich", "starlette", "hypercorn")

every_python_file = pytest.mark.parametrize("path", PYTHON_FILES, ids=name_of)


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_at_the_root_is_a_link_into_the_package(room: str) -> None:
    link = ROOT / room
    assert link.is_symlink(), f"{room} must be a link, so that both names show the same files"
    assert link.readlink() == Path("fencepost") / room, "a relative link, or it breaks in the next clone"
    assert (link / "__init__.py").is_file()


def test_there_is_something_to_check() -> None:
    assert len(PYTHON_FILES) > 30


@every_python_file
def test_a_file_fits_in_a_head(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= FILE_LINES_MAX, f"{lines} lines; split it by what changes together"


@every_python_file
def test_a_function_fits_on_a_screen(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    too_long = {
        f"{node.name} (line {node.lineno})": node.end_lineno - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert not too_long


@every_python_file
def test_a_module_says_first_what_it_is_for(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstring = ast.get_docstring(tree)
    if docstring is None and not tree.body:
        return  # an empty __init__.py of a test folder has nothing to explain
    assert docstring, "the module's docstring is missing"
    first_paragraph = docstring.split("\n\n")[0]
    assert "." in first_paragraph, "the first paragraph holds at least one whole sentence"


@every_python_file
def test_a_module_has_a_name_that_says_something(path: Path) -> None:
    words = set(path.stem.split("_"))
    assert not words & SHAPELESS_NAMES


def test_starting_the_command_line_loads_nothing_heavy() -> None:
    """Start-up counts (first acknowledged produce under a second), so Spark, Arrow and pictures load on first use."""
    program = f"import sys, fencepost.__main__\nprint([name for name in {HEAVY_MODULES!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
