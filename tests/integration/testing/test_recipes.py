"""Every recipe of docs/recipes/frameworks.md runs, as it stands there."""

import inspect
import re
from typing import Any

import pytest

from tests.architecture.project_files import ROOT

PAGE = ROOT / "docs" / "recipes" / "frameworks.md"
RECIPES = {
    re.findall(r"^def (test_\w+)", block, re.MULTILINE)[-1]: block
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
}
NOT_LOCKED = {"quixstreams", "faust"}
"""Frameworks that want older versions of packages which the project's own environment has; the page says which."""

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", RECIPES)
def test_recipe(name: str, request: pytest.FixtureRequest) -> None:
    names: dict[str, Any] = {"__name__": __name__}
    try:
        exec(compile(RECIPES[name], str(PAGE), "exec"), names)
    except ModuleNotFoundError as error:
        if error.name not in NOT_LOCKED:
            raise
        pytest.skip(f"{error.name} cannot be installed beside the project's other packages: see {PAGE.name}")
    names[name](**{each: request.getfixturevalue(each) for each in inspect.signature(names[name]).parameters})
