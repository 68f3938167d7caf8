"""What the extras of the wheel bring: the development environment has more, and so hides what an extra lacks."""

import importlib.metadata
import re
import tomllib

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
