"""`python -m tests.models.explore`: every order of steps of two brokers with the real cores, in scopes of any size.

A run is a word of steps. Runs that lead to the same state count once. After each step the rows in the database are
judged; then the run is settled, and judged again.
"""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from tests.models.core_rules import violations
from tests.models.core_world import Limits, World

OPEN = ("P0 A", "round A")
"""A transaction with a durable record."""


class Scope(NamedTuple):
    """Which words are played."""

    length: int
    beginning: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Words that are left out."""
    limits: Limits = Limits()
    inline_bytes: int = 1 << 14


class Found(NamedTuple):
    """A run that breaks a rule."""

    run: tuple[str, ...]
    violations: list[str]


class Result(NamedTuple):
    """What an exploration came to."""

    states: int
    runs: int
    found: Found | None


def played(scope: Scope, run: Sequence[str]) -> World:
    """The world after a run."""
    world = World(scope.limits, scope.inline_bytes)
    for step in (*scope.beginning, *run):
        world.play(step)
    return world


def explore(scope: Scope) -> Result:
    """Play all runs of a scope, the short ones first; stop at the first that breaks a rule."""
    seen, runs = {played(scope, ()).fingerprint()}, 0
    frontier: list[tuple[str, ...]] = [()]
    for _ in range(scope.length):
        following = []
        for run in frontier:
            enabled = [
                step
                for step in played(scope, run).enabled()
                if step not in scope.without and step.partition(" ")[0] not in scope.without
            ]
            for step in enabled:
                runs += 1
                longer = (*run, step)
                found, state = _judged(scope, longer, seen)
                if found:
                    return Result(len(seen), runs, Found((*scope.beginning, *longer), found))
                if state not in seen:
                    seen.add(state)
                    following.append(longer)
        frontier = following
    return Result(len(seen), runs, None)


def _judged(scope: Scope, run: tuple[str, ...], seen: set[int]) -> tuple[list[str], int]:
    """What is wrong after a run, and its state; a state that was seen before is not judged again."""
    try:
        world = played(scope, run)
        state = world.fingerprint()
        if state in seen:
            return [], state
        found = violations(world)
        world.settle()
        return found or violations(world, settled=True), state
    except Exception as error:  # noqa: BLE001, a broker that ends so is what is looked for
        return [f"the run ended: {error!r}"], 0


FAULTS = Limits(faults=1, takeovers=1)
SCOPES = {
    "guests": Scope(4, OPEN, without=("Q1", "P1")),
    "takeovers": Scope(5, OPEN, without=("Q0", "Q1", "P1"), limits=Limits(takeovers=2)),
    "handovers": Scope(5, OPEN, without=("Q1", "P1", "give1"), limits=Limits(handovers=1)),
    "faults": Scope(4, OPEN, without=("Q0", "Q1", "P1", "collected", "put-fails"), limits=FAULTS),
    "objects": Scope(4, OPEN, without=("Q0", "Q1", "P1"), limits=Limits(faults=1), inline_bytes=0),
}
"""`make test` plays runs of these lengths."""


def main() -> int:
    """The command; 1 if a run breaks a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.models.explore", description=__doc__)
    parser.add_argument("scopes", nargs="*", metavar="SCOPE", help=f"{', '.join(SCOPES)} (default: all)")
    parser.add_argument("--steps", type=int, help="the length of the longest runs")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    broken = False
    for name in arguments.scopes or SCOPES:
        begun, scope = time.monotonic(), SCOPES[name]
        result = explore(scope._replace(length=arguments.steps or scope.length))
        seconds = time.monotonic() - begun
        print(f"{name}: {result.states} states, {result.runs} runs, {seconds:.0f} s", flush=True)
        if result.found is not None:
            broken = True
            print("\n".join([", ".join(result.found.run), *result.found.violations]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
