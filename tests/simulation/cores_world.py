"""`python -m tests.simulation.cores_world`: brokers of several cores in one process, one world for each seed.

The brokers are the real `Core` over simulated disks. Requests between cores are lost, doubled, and come late, also to
or from another life. Cores are killed at any call to their disks, and with the marker that they send or get. Clients
and rules are those of the other worlds (`whole_world.py`, `oracles.py`).
"""

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import time

from tests.kit.determinism import run_seeded
from tests.simulation.hashes import fix_hashes
from tests.simulation.judging import Result, judged
from tests.simulation.many_cores import CoresWorld
from tests.simulation.spoilt_cores import SPOILT
from tests.simulation.whole_world import Outcome


def run_world(seed: int) -> Outcome:
    """The world of a seed, from beginning to end."""
    return run_seeded(seed, CoresWorld(seed).run)


def judge(seed: int) -> Result:
    """One world, and what is wrong with it."""
    return judged(run_world, seed)


def main() -> int:
    """The command; 1 if a world went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.cores_world", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="the number of worlds (100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first world that went wrong")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (one per core)")
    parser.add_argument("--spoilt", choices=SPOILT, help="give the cores this defect, and see whether it is found")
    parser.add_argument("--trace", action="store_true", help="show what happened")
    arguments = parser.parse_args()
    fix_hashes("tests.simulation.cores_world")
    logging.disable(logging.CRITICAL)
    gc.disable()  # `judge` collects after each world
    gc.freeze()
    if arguments.spoilt:
        SPOILT[arguments.spoilt]()
    begun, wrong, total = time.monotonic(), 0, Result(0, [], [], 0.0, 0, 0, 0)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with multiprocessing.get_context("fork").Pool(arguments.jobs, maxtasksperchild=50) as pool:
        for one in pool.imap(judge, seeds):
            total = total._replace(
                transactions=total.transactions + one.transactions,
                requests=total.requests + one.requests,
                lives=total.lives + one.lives,
            )
            wrong += bool(one.violations)
            if one.violations or arguments.trace:
                print(
                    "\n".join([*one.trace, f"seed {one.seed}:", *(text[:400] for text in one.violations[:12])]),
                    flush=True,
                )
            if one.violations and not arguments.keep_going:
                break
    print(
        f"{total.transactions} transactions, {total.requests} requests, {total.lives} lives of cores in"
        f" {time.monotonic() - begun:.0f} s; {wrong} of {arguments.seeds} worlds went wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
