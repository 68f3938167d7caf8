"""The rules of the house: where the rooms stand, how long a file may be, what a module says of itself."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.architecture.project_files import PYTHON_FILES, ROOT, name_of
from tests.architecture.source_facts import facts

ROOMS = ("broker", "client", "coordinator", "protocol", "spark_connector")
FILE_LINES_MAX = 400
TABLES = {"fencepost/broker/config/settings.py": "one row a setting, and the place where a setting is looked for"}
"""Files that may be longer, and why: data alone, without a function."""
FUNCTION_LINES_MAX = 70
SHAPELESS_NAMES = {"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"}
HEAVY_MODULES = ("pyspark", "pyarrow", "numpy", "pandas", "matplotlib", "rich", "starlette", "hypercorn", "psycopg")


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_at_the_root_is_a_link_into_the_package(room: str) -> None:
    link = ROOT / room
    assert link.is_symlink(), f"{room} must be a link, so that both names show the same files"
    assert link.readlink() == Path("fencepost") / room, "a relative link, or it breaks in the next clone"
    assert (link / "__init__.py").is_file()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_not_imported_by_its_link(room: str) -> None:
    """It would be there twice, with two of each class."""
    with pytest.raises(ImportError, match=rf"import fencepost\.{room}"):
        import_module(room)


def test_there_is_something_to_check() -> None:
    assert len(PYTHON_FILES) > 30


def test_a_file_fits_in_a_head() -> None:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in PYTHON_FILES}
    assert {name for name, lines in lengths.items() if lines > FILE_LINES_MAX} == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_no_function(name: str) -> None:
    assert facts()[name].functions == {}


def test_a_function_fits_on_a_screen() -> None:
    lengths = {f"{name}:{place}": lines for name, found in facts().items() for place, lines in found.functions.items()}
    assert {place: lines for place, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


def test_a_module_says_first_what_it_is_for() -> None:
    """An empty __init__.py of a test folder has nothing to explain."""
    assert [name for name, found in facts().items() if found.is_silent] == []


def test_no_test_module_is_imported_by_another() -> None:
    """What several of them need stands in a module of its own, so that each can be read, run and moved alone."""
    imported = [
        f"{name}:{line} {whole}"
        for name, found in facts().items()
        for line, module, names in found.imports
        for one in names
        if (whole := f"{module}.{one}" if module else one).startswith("tests.")
        and any(part.startswith("test_") for part in whole.split("."))
    ]
    assert imported == []


def test_a_module_has_a_name_that_says_something() -> None:
    assert [name_of(path) for path in PYTHON_FILES if SHAPELESS_NAMES & set(path.stem.split("_"))] == []


def test_starting_the_command_line_loads_nothing_heavy() -> None:
    """Start-up counts (first acknowledged produce under a second), so Spark, Arrow and pictures load on first use."""
    program = f"import sys, fencepost.__main__\nprint([name for name in {HEAVY_MODULES!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
