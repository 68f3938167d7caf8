"""Commands that run worlds of several brokers or cores, one for each seed, in processes of their own."""

import argparse
import gc
import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping

from tests.simulation.hashes import fix_hashes
from tests.simulation.judging import Result


def arguments_of(module: str, text: str | None, spoilt: Mapping[str, object]) -> argparse.ArgumentParser:
    """The arguments that all these commands have."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=text)
    parser.add_argument("--seeds", type=int, default=100, help="the number of worlds (100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first world that went wrong")
    parser.add_argument("--until", metavar="TEXT", default="", help="stop only at a violation with this text (any)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (one per core)")
    parser.add_argument("--spoilt", choices=spoilt, help="plant this defect, and see whether it is found")
    parser.add_argument("--trace", action="store_true", help="show what happened")
    return parser


def run_worlds(
    module: str,
    judge: Callable[[int], Result],
    arguments: argparse.Namespace,
    spoilt: Mapping[str, Callable[[], None]],
) -> int:
    """Run the worlds and say what came of them; 1 if one went wrong. `judge` is a function of its module."""
    fix_hashes(module)
    logging.disable(logging.CRITICAL)
    gc.disable()  # `judge` collects after each world: during one it finds next to nothing, and costs a tenth
    gc.freeze()
    if arguments.spoilt:
        spoilt[arguments.spoilt]()
    begun, wrong, total = time.monotonic(), 0, Result(0, [], [], 0.0, 0, 0, 0)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with multiprocessing.get_context("fork").Pool(arguments.jobs, maxtasksperchild=50) as pool:
        for one in pool.imap(judge, seeds):
            seconds, requests = total.seconds + one.seconds, total.requests + one.requests
            transactions, lives = total.transactions + one.transactions, total.lives + one.lives
            total = Result(0, [], [], seconds, requests, transactions, lives)
            wrong += bool(one.violations)
            shown = [text[:400] for text in one.violations[:12]]
            if shown or arguments.trace:
                print("\n".join([*one.trace, f"seed {one.seed}:", *shown]), flush=True)
            if any(arguments.until in text for text in shown) and not arguments.keep_going:
                break
    print(
        f"{total.transactions} transactions, {total.requests} requests, {total.lives} lives,"
        f" {total.seconds / 3600:.2f} simulated hours in {time.monotonic() - begun:.0f} s;"
        f" {wrong} of {arguments.seeds} worlds went wrong"
    )
    return 1 if wrong else 0
