"""Tests of records run twice: with the compiled part, and without it."""

from collections.abc import Iterator

import pytest

from fencepost.protocol import compiled

COMPILED = compiled.hot
needs_compiled = pytest.mark.skipif(COMPILED is None, reason="the compiled part is not built here, or is forbidden")


@pytest.fixture(scope="module", autouse=True, params=["pure Python", pytest.param("compiled", marks=needs_compiled)])
def record_code(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which way records go; import it into a module of tests to have all of them run both ways."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "hot", COMPILED if request.param == "compiled" else None)
        yield compiled.record_code()
