"""Tests of records run three times: with the compiled part, in plain Python, and in plain Python with numpy's help."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from fencepost.protocol import compiled, records

COMPILED = compiled.hot
needs_compiled = pytest.mark.skipif(COMPILED is None, reason="the compiled part is not built here, or is forbidden")
needs_numpy = pytest.mark.skipif(find_spec("numpy") is None, reason="numpy is not installed")
WAYS = [
    "pure Python",
    pytest.param("numpy", marks=needs_numpy),
    pytest.param("compiled", marks=needs_compiled),
]


def take(way: str, patch: pytest.MonkeyPatch) -> None:
    """Have records go one of the WAYS; "numpy" from the first record on."""
    patch.setattr(compiled, "hot", COMPILED if way == "compiled" else None)
    patch.setattr(records.numpy_use, "from_count", 1 if way == "numpy" else 2**62)
    patch.setattr(records.numpy_use, "after_records", 0)


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def record_code(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which way records go; import it into a module of tests to have all of them run each way."""
    with pytest.MonkeyPatch.context() as patch:
        take(request.param, patch)
        yield request.param
