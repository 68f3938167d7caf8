"""`python -m tests.simulation.cores_world`: brokers of several cores in one process, one world for each seed.

The brokers are the real `Core` over simulated disks. Requests between cores are lost, doubled, and come late, also to
or from another life. Cores are killed at any call to their disks, and with the marker that they send or get. Clients
and rules are those of the other worlds (`whole_world.py`, `oracles.py`).
"""

import sys

from tests.kit.determinism import run_seeded
from tests.simulation.judging import Result, judged
from tests.simulation.many_cores import CoresWorld
from tests.simulation.many_worlds import arguments_of, run_worlds
from tests.simulation.spoilt_cores import SPOILT
from tests.simulation.whole_world import Outcome

MODULE = "tests.simulation.cores_world"


def run_world(seed: int) -> Outcome:
    """The world of a seed, from beginning to end."""
    return run_seeded(seed, CoresWorld(seed).run)


def judge(seed: int) -> Result:
    """One world, and what is wrong with it."""
    return judged(run_world, seed)


def main() -> int:
    """The command; 1 if a world went wrong."""
    parser = arguments_of(MODULE, __doc__, SPOILT)
    arguments = parser.parse_args()
    return run_worlds(MODULE, judge, arguments, SPOILT)


if __name__ == "__main__":
    sys.exit(main())
