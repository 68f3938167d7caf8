"""What came of a world, and what is wrong with it."""

import gc
import traceback
from collections.abc import Callable
from typing import NamedTuple

from tests.kit.determinism import ends_within
from tests.simulation.oracles import violations
from tests.simulation.whole_world import Outcome


class Result(NamedTuple):
    """What came of one world."""

    seed: int
    violations: list[str]
    trace: list[str]
    seconds: float
    requests: int
    transactions: int
    lives: int


def judged(run: Callable[[int], Outcome], seed: int) -> Result:
    """As `looked_at`, within a time, and with the world's garbage collected."""

    def within() -> Outcome:
        with ends_within(seconds=120):
            return run(seed)

    try:
        return looked_at(within, seed)
    finally:
        gc.collect()


def looked_at(run: Callable[[], Outcome], seed: int) -> Result:
    """The world that `run` makes, and what is wrong with it. An exception is a violation, too."""
    try:
        outcome = run()
        found = violations(outcome)
    except Exception as error:  # noqa: BLE001, a world that ends so is what is looked for
        return Result(seed, [f"the world ended: {error!r}"], traceback.format_exception(error), 0.0, 0, 0, 0)
    transactions = sum(len(writer.transactions) for writer in outcome.history.writers)
    return Result(seed, found, outcome.trace, outcome.seconds, outcome.requests, transactions, outcome.lives)
