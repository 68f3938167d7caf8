"""Every Python example of docs/testing.md runs, as it stands there."""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = Path(__file__).parents[3] / "docs" / "testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]


def examples() -> Iterator[Any]:
    """The test functions of each block, under their own names and with their own marks."""
    for block in BLOCKS:
        if "def test_" not in block:
            continue
        names: dict[str, Any] = {}
        exec(compile(block, str(DOCUMENT), "exec"), names)
        for name, function in names.items():
            if name.startswith("test_"):
                yield pytest.param(function, id=name, marks=getattr(function, "pytestmark", []))


@pytest.mark.parametrize("function", list(examples()))
def test_example(function: Callable[..., None], request: pytest.FixtureRequest) -> None:
    function(**{name: request.getfixturevalue(name) for name in inspect.signature(function).parameters})


def test_the_example_without_pytest(capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = [block for block in BLOCKS if "def test_" not in block]
    exec(compile(script, str(DOCUMENT), "exec"), {})
    assert capsys.readouterr().out.startswith("127.0.0.1:")
