"""`python -m tests.models.walks`: long random runs of two brokers with the real cores, one for each seed.

As `tests.models.explore`, with more of everything: transactions, takeovers, restarts, pauses (a broker has no step for
a while) and faults of both stores.
"""

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from random import Random
from typing import NamedTuple

from tests.models.core_rules import violations
from tests.models.core_world import Limits, World

STEPS = 80
LIMITS = Limits(sequences=3, epochs=6, plain=6, faults=6, takeovers=4, restarts=2, handovers=4)
JUDGED_EVERY = 10
PAUSE_STEPS = 8
WEIGHTS = {"restart": 0.05, "take": 0.15, "end": 0.3}
"""How often a step is chosen, where others have 1."""


class Walk(NamedTuple):
    """What came of one seed."""

    seed: int
    steps: tuple[str, ...]
    violations: list[str]
    rows: int


def walk(seed: int) -> Walk:
    """The run of a seed, judged now and then, and when it is settled."""
    random = Random(seed)
    world = World(LIMITS, random.choice((0, 150, 1 << 14)))
    steps: list[str] = []
    found: list[str] = []
    paused = None
    try:
        for number in range(STEPS):
            if number % PAUSE_STEPS == 0:
                paused = random.choice((None, None, "A", "B"))
            steps.append(_next_step(random, world, paused))
            world.play(steps[-1])
            if number % JUDGED_EVERY == 0:
                found = found or violations(world)
        world.settle()
        found = found or violations(world, settled=True)
    except Exception as error:  # noqa: BLE001, a broker that ends so is what is looked for
        found = [f"the run ended: {error!r}"]
    return Walk(seed, tuple(steps), found, sum(map(len, world.stores.database.rows.values())))


def _next_step(random: Random, world: World, paused: str | None) -> str:
    """Any kind of step, then any step of that kind."""
    by_word: dict[str, list[str]] = {}
    for step in world.enabled():
        word, _, name = step.partition(" ")
        if name != paused:
            by_word.setdefault(word, []).append(step)
    if not by_word:
        return "arrive"
    words = sorted(by_word)
    (word,) = random.choices(words, [WEIGHTS.get(word, 1.0) for word in words])
    return random.choice(by_word[word])


def main() -> int:
    """The command; 1 if a run breaks a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.models.walks", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="the number of runs (100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (one per core)")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    begun, wrong, rows = time.monotonic(), 0, 0
    played: Counter[str] = Counter()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with multiprocessing.get_context("fork").Pool(arguments.jobs) as pool:
        for result in pool.imap_unordered(walk, seeds, chunksize=16):
            rows += result.rows
            played.update(step.partition(" ")[0] for step in result.steps)
            if result.violations:
                wrong += 1
                print("\n".join([f"seed {result.seed}: {', '.join(result.steps)}", *result.violations]), flush=True)
    print(", ".join(f"{count} {word}" for word, count in sorted(played.items())))
    print(f"{arguments.seeds} runs, {rows} rows, {time.monotonic() - begun:.0f} s; {wrong} runs broke a rule")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
