"""What the extras of the wheel bring: the development environment has more, and so hides what an extra lacks."""

import importlib.metadata
import re
import tomllib

from tests import compat
from tests.architecture.project_files import ROOT


def test_the_extra_spark_brings_what_spark_asks_for_in_sql() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    brought = {_name(wanted) for wanted in project["optional-dependencies"]["spark"]}
    asked = {
        _name(wanted)
        for wanted in importlib.metadata.requires("pyspark") or []
        if re.search(r"extra == ['\"]sql['\"]", wanted)
    }
    assert {"pandas", "pyarrow"} <= asked
    assert asked <= brought


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def test_what_make_compat_runs_exists_and_each_dependency_has_a_lower_bound() -> None:
    assert [name for name in (*compat.CORE, *compat.MORE_PACKAGES) if not (ROOT / name).exists()] == []
    assert compat.versions() == ["3.11", "3.12", "3.13", "3.14", "3.15", "3.14t", "3.15t"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    unbound = {one for one in named if not re.search(r">=|==", one) and not one.startswith("fencepost[")}
    assert unbound == set()
