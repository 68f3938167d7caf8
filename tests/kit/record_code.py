"""Tests of records run twice: with the compiled part, and in plain Python."""

from collections.abc import Iterator

import pytest

from fencepost.protocol import compiled

COMPILED = compiled.hot
needs_compiled = pytest.mark.skipif(COMPILED is None, reason="the compiled part is not built here, or is forbidden")
WAYS = [
    "pure Python",
    pytest.param("compiled", marks=needs_compiled),
]


def take(way: str, patch: pytest.MonkeyPatch) -> None:
    """Have records go one of the WAYS."""
    patch.setattr(compiled, "hot", COMPILED if way == "compiled" else None)


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def record_code(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which way records go; import it into a module of tests to have all of them run each way."""
    with pytest.MonkeyPatch.context() as patch:
        take(request.param, patch)
        yield request.param
