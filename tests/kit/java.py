"""Tests that need Java: what happens where it is missing."""

import os
from typing import NoReturn

import pytest


def skip_or_fail(missing: Exception) -> NoReturn:
    """Skip the test for want of Java or its jars; fail where FENCEPOST_REQUIRE_JAVA is set."""
    if os.environ.get("FENCEPOST_REQUIRE_JAVA"):
        pytest.fail(f"FENCEPOST_REQUIRE_JAVA is set, and: {missing}")
    pytest.skip(str(missing))
