"""What an installation has: a clone installed in place, and a wheel built where an older build has left its files."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.project_files import PROJECT_FILES, ROOT

COMPILED = "fencepost/protocol/_hot.abi3.so"
PACKAGES = ("fencepost", "pyspark_fencepost")


def test_pyspark_can_list_the_data_source_from_any_folder(tmp_path: Path) -> None:
    """PySpark looks for data sources with `pkgutil.iter_modules`, which sees no module that an import hook provides."""
    code = "import pkgutil; print([one.name for one in pkgutil.iter_modules() if one.name.startswith('pyspark_')])"
    listed = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True, timeout=100, check=True
    )
    assert "'pyspark_fencepost'" in listed.stdout


def copied_tree(place: Path) -> Path:
    """What a wheel is built from, as it stands under version control."""
    for path in PROJECT_FILES:
        name = path.relative_to(ROOT)
        if name.parts[0] in PACKAGES or str(name) in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place / name)
    return place


def built_wheel(tree: Path, compiler: str) -> tuple[str, list[str], str]:
    """The name of a wheel, the names in it, and its description, built with `compiler` for C."""
    code = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"
    words = [sys.executable, "-c", code, str(tree.parent)]
    environment = {**os.environ, "CC": compiler}
    built = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    wheel = tree.parent / built.stdout.splitlines()[-1]
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (description,) = [opened.read(name).decode() for name in names if name.endswith(".dist-info/WHEEL")]
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    assert {"fencepost/broker/node.py", "fencepost/broker/cluster/migrations/0001.sql"} <= set(names)
    return wheel.name, names, description


def test_a_wheel_has_what_was_built_for_it_and_a_tag_that_fits(tmp_path: Path) -> None:
    """The second build finds what the first one left: a compiled part, and a module that is no more. `false` is a C
    compiler that fails, as where there is none.
    """
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    tree = copied_tree(tmp_path / "tree")
    name, names, description = built_wheel(tree, "cc")
    assert COMPILED in names
    assert "-cp311-abi3-linux_" in name or not sys.platform.startswith("linux")
    assert "Root-Is-Purelib: false\n" in description

    (left,) = (tree / "build").glob("lib*")
    assert (left / COMPILED).is_file()
    (left / "fencepost" / "gone.py").touch()
    name, names, description = built_wheel(tree, "false")
    assert [name for name in names if name.endswith((".so", "gone.py"))] == []
    assert name.endswith("-py3-none-any.whl")
    assert "Root-Is-Purelib: true\nTag: py3-none-any\n" in description
