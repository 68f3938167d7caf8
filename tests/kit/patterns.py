"""Tests of regular expressions need google-re2, which has no wheel for some Pythons."""

from importlib.util import find_spec

import pytest

NEEDS_RE2 = pytest.mark.skipif(find_spec("re2") is None, reason="google-re2, the extra `patterns`, is not installed")
