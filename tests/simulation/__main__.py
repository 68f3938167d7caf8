"""`python -m tests.simulation`: many worlds, one per seed, and the command that replays the one that went wrong."""

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.simulation.hashes import fix_hashes
from tests.simulation.judging import Result, looked_at
from tests.simulation.spoilt import SPOILT
from tests.simulation.whole_world import run_world

_SHOWN = 12
_WIDTH = 400


class Job(NamedTuple):
    """Which world."""

    seed: int
    version: int | None = None
    """The transaction protocol that everybody speaks; None for some of both."""
    never_late: tuple[str, ...] = ()
    """Requests that do not come late, or twice."""


def judge(job: Job) -> Result:
    """One world, and what is wrong with it; its trace only where something is."""
    found = looked_at(lambda: run_world(*job), job.seed)
    return found if found.violations else found._replace(trace=[])


def results(work: Sequence[Job], jobs: int) -> Iterator[Result]:
    """All these worlds, in their order, `jobs` at a time."""
    if jobs == 1:
        yield from map(judge, work)
        return
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=500) as pool:
        yield from pool.imap(judge, work, chunksize=4)


def main() -> int:
    """The command; 1 where a world went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many worlds (100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time (one per core)")
    parser.add_argument("--tv1", action="store_true", help="force the first transaction protocol, and spare nobody")
    parser.add_argument(
        "--spoilt", choices=SPOILT, help="make the broker wrong in this way, and see whether it is found"
    )
    parser.add_argument("--never-late", metavar="API", action="append", default=[], help="never late, never twice")
    parser.add_argument("--trace", action="store_true", help="show what happened, also where all was well")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first world that went wrong")
    parser.add_argument("--stop-after", type=int, default=0, help="with --keep-going: stop after so many wrong ones")
    arguments = parser.parse_args()
    fix_hashes("tests.simulation")
    logging.disable(logging.CRITICAL)
    if arguments.spoilt:
        SPOILT[arguments.spoilt]()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    work = [Job(seed, 1 if arguments.tv1 else None, tuple(arguments.never_late)) for seed in seeds]
    if arguments.trace and len(work) == 1:
        print("\n".join(run_world(*work[0]).trace))
    return run(work, arguments)


def run(work: Sequence[Job], arguments: argparse.Namespace) -> int:
    """All worlds with a line that says how far it is; 1 where one went wrong."""
    began, failed = time.monotonic(), 0
    seconds = requests = transactions = crashes = 0.0
    for done, result in enumerate(results(work, arguments.jobs), 1):
        seconds += result.seconds
        requests += result.requests
        transactions += result.transactions
        crashes += max(0, result.lives - 2)
        if result.violations:
            failed += 1
            tell(result, arguments)
            if not arguments.keep_going or failed == arguments.stop_after:
                break
        if sys.stderr.isatty() or done % 100 == 0 or done == len(work):
            rate = done / (time.monotonic() - began)
            end = "\r" if sys.stderr.isatty() and done < len(work) else "\n"
            print(f"{done}/{len(work)} worlds, {failed} wrong, {rate:.1f}/s ", end=end, file=sys.stderr, flush=True)
    print(
        f"{transactions:.0f} transactions, {requests:.0f} requests, {crashes:.0f} ends of a broker,"
        f" {seconds / 3600:.2f} simulated hours in {time.monotonic() - began:.0f} s; {failed} worlds went wrong"
    )
    return 1 if failed else 0


def tell(result: Result, arguments: argparse.Namespace) -> None:
    """Why a world is wrong, what happened in it, and how to see it again."""
    print("\n".join(result.trace if not arguments.keep_going else []))
    print(f"seed {result.seed}:")
    for violation in result.violations[:_SHOWN]:
        print(f"  {violation[:_WIDTH]}")
    how = (" --tv1" if arguments.tv1 else "") + "".join(f" --never-late {api}" for api in arguments.never_late)
    how += f" --spoilt {arguments.spoilt}" if arguments.spoilt else ""
    print(f"see it again: python -m tests.simulation --first {result.seed} --seeds 1 --jobs 1{how}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
