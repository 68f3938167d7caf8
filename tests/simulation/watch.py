"""Who looks on while a world runs: bounds that may not go back, transactions that may not last."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from fencepost.coordinator.txn.state import Ongoing, PrepareAbort, PrepareCommit
from tests.kit.determinism import nap
from tests.simulation.node_state import bounds_of, transactional_ids

if TYPE_CHECKING:
    from fencepost.broker.node import Node
    from tests.simulation.whole_world import WholeWorld

LOOK_SECONDS = 0.1
OVERTIME_SECONDS = 1.0


def bounds_broken(before: tuple[int, int, int] | None, now: tuple[int, int, int]) -> str | None:
    """What is wrong with LSO, high watermark and log end offset, before and now; None where nothing is."""
    lso, high_watermark, end = now
    if not lso <= high_watermark <= end:
        return f"LSO {lso} <= HW {high_watermark} <= LEO {end} does not hold"
    if before is not None and (lso < before[0] or high_watermark < before[1]):
        return f"(LSO, HW, LEO) went from {before} to {now}"
    return None


def overdue(seen: Mapping[object, float], key: object, may_last: float, now: float) -> float | None:
    """How many seconds what was first seen then has lasted, where that is a second too long; None where it is not."""
    lasted = now - seen[key]
    return lasted if lasted > may_last + OVERTIME_SECONDS else None


class Watch:
    """FilterBudget ten times a second of virtual time."""

    def __init__(self, world: "WholeWorld") -> None:
        self._world = world
        self._life = 0
        self._bounds: dict[object, tuple[int, int, int]] = {}
        self._seen: dict[object, float] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await nap(LOOK_SECONDS)
            node = self._world.broker.node
            if node is not None:
                self._look_at_bounds(node)
                if self._world.weather.calm:
                    self._look_at_transactions(node)

    def _look_at_bounds(self, node: "Node") -> None:
        if self._life != self._world.broker.lives:
            self._life = self._world.broker.lives
            self._bounds.clear()
        for tp, now in bounds_of(node).items():
            wrong = bounds_broken(self._bounds.get(tp), now)
            if wrong is not None:
                self._world.outcome.broken.append(f"{tp}: {wrong}")
            self._bounds[tp] = now

    def _look_at_transactions(self, node: "Node") -> None:
        """Since all is calm each open transaction must end in its time, and each decided one soon."""
        now = trio.current_time()
        seen: dict[object, float] = {}
        for name, state in transactional_ids(node):
            if isinstance(state, Ongoing | PrepareAbort | PrepareCommit):
                key = self._life, name, state.started_ms, state.producer, state.name
                seen[key] = self._seen.get(key, now)
                pause_ms = node.transactions.config.marker_retry_backoff_max_ms  # one may have begun before
                may_last = (state.timeout_ms if isinstance(state, Ongoing) else pause_ms) / 1000
                lasted = overdue(seen, key, may_last, now)
                if lasted is not None:
                    self._world.outcome.broken.append(f"{name} is {state.name} since {lasted:.2f} s: {state}")
        self._seen = seen
