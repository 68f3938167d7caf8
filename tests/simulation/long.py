"""How much of the simulation a test run plays: a part of the calls that fits a run of every change, or all of them."""

import os

LONG = os.environ.get("FENCEPOST_SIMULATION") == "long"
"""Set FENCEPOST_SIMULATION=long for every call, every fate and many samples: an hour or so."""


def every(step: int) -> int:
    """Every `step`th call in a short run, every one in a long one. Steps are primes: no pattern of the script hides."""
    return 1 if LONG else step
