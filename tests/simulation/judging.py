"""What came of a world of several brokers, and what is wrong with it."""

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
    """The world that `run` makes of a seed, and what is wrong with it."""
    try:
        with ends_within(seconds=120):
            outcome = run(seed)
        found = violations(outcome)
    except Exception as error:  # noqa: BLE001, a world that ends so is what is looked for
        return Result(seed, [f"the world ended: {error!r}"], traceback.format_exception(error), 0.0, 0, 0, 0)
    finally:
        gc.collect()
    transactions = sum(len(writer.transactions) for writer in outcome.history.writers)
    return Result(seed, found, outcome.trace, outcome.seconds, outcome.requests, transactions, outcome.lives)
