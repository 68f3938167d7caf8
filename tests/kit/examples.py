"""How many examples a property is shown: all by `make test`, the first of them by `make check`."""

from hypothesis import settings

USUAL = 100
"""How many hypothesis shows where a test sets no number."""
SHORT = 30
"""What it shows instead in the profile of `make check`."""
FEW = 5
"""The first examples are the simplest: fewer than these say little."""


def examples(count: int) -> int:
    """So many of `count` as the profile shows of the usual number, and never fewer than a few."""
    profile = settings.default
    assert profile is not None
    return max(min(count, FEW), count * profile.max_examples // USUAL)
