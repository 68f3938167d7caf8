"""Some histories of `python -m tests.simulation.metadata_power_cut`, with some of their crashes (rows M1, M2)."""

import pytest

from tests.simulation.metadata_power_cut import play

CRASHES = 10


@pytest.mark.parametrize("seed", range(3))
def test_m1_m2_a_power_cut_anywhere_leaves_the_metadata_from_before_or_after_the_change(seed: int) -> None:
    """With snapshots that let go of the log before them, and of topics whose files must go as well."""
    assert play(seed, CRASHES) == CRASHES
