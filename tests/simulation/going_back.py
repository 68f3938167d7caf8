"""`python -m tests.simulation.going_back`: clusters whose database goes back in time, one world for each seed.

Writers work until the database goes back, by up to two seconds, and end with that: what they did since is lost. Then
the brokers join again, and other writers begin. From then on all rules of the worlds hold, over the same logs.
"""

import argparse
import gc
import logging
import multiprocessing
import os
import sys

import trio

from fencepost.broker.cluster.history import History
from tests.kit.determinism import ends_within, nap, run_seeded
from tests.kit.history import Fate
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.hashes import fix_hashes
from tests.simulation.oracles import violations
from tests.simulation.sim_writers import PlainWriter

SERVES_SECONDS = 6.0
"""A lease and five seconds."""


class GoingBack(ClusterWorld):
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.plan.inline_bytes = 16 << 10  # object ids that are claimed twice are another matter
        self.plan.copier = False
        self._is_back = trio.Event()

    async def _follow(self, isolation: str, pause_seconds: float) -> None:
        await self._is_back.wait()
        await super()._follow(isolation, pause_seconds)

    async def _run_programs(self) -> None:
        calm, self.weather.calm = self.weather.calm, True
        async with trio.open_nursery() as early:
            for number in range(self.plan.writers + 1):
                writer = PlainWriter(self, f"early{number}", 2, self.fork(), self.places, 1000)  # type: ignore[arg-type]
                writer.finished = lambda: False  # type: ignore[method-assign]
                self._begin(writer, early)
            await nap(self.random.uniform(0.5, 2.0))
            saved = self.cluster.database.saved()
            known = [(one, one.fate) for writer in self.history.writers for one in writer.transactions.values()]
            self.tell(f"saved with {len(known)} transactions")
            await nap(self.random.uniform(0.05, 2.0))
            early.cancel_scope.cancel()
        self.cluster.weather.calm = True  # for the bound of time
        self.cluster.database.go_back(saved)
        self.tell("the database goes back")
        for writer in self.history.writers:
            for one in writer.transactions.values():
                one.fate = Fate.UNKNOWN
        for one, fate in known:
            one.fate = fate if fate in (Fate.COMMITTED, Fate.ABORTED) else Fate.UNKNOWN
        self.outcome.fences.clear()
        with trio.move_on_after(SERVES_SECONDS) as limit:
            while self.cluster.database.starts != self.cluster.database.lives[-1].start or self._behind():
                await nap(0.05)
        if limit.cancelled_caught:
            self.outcome.broken.append("not all brokers serve again within a lease and some seconds")
        await self._all_lead()
        self.tell("all brokers serve again")
        self._is_back.set()
        self.weather.calm, self.cluster.weather.calm = calm, False
        await super()._run_programs()

    def _behind(self) -> bool:
        """Whether a broker still serves what it knew before."""
        life = self.cluster.database.life
        places = [member.member for member in self.cluster.members]
        return any(place is None or place.writer.history.life != life for place in places)


def unchecked() -> None:
    """The defect: no broker compares what it knows with the database. Only its own commits are looked at, as before."""
    History._compare = lambda history, known, position: None  # type: ignore[method-assign]

    def connected(history: History, lives: object, known: int, position: int) -> None:
        history._life = lives[-1]  # type: ignore[index]

    History.connected = connected  # type: ignore[method-assign]


def judge(seed: int) -> tuple[int, list[str], list[str]]:
    """A world, what is wrong with it, and its trace."""
    try:
        with ends_within(seconds=120):
            outcome = run_seeded(seed, GoingBack(seed).run)
        return seed, violations(outcome), outcome.trace
    except Exception as error:  # noqa: BLE001, a world that ends so is what is looked for
        import traceback

        return seed, [f"the world ended: {error!r}"], traceback.format_exception(error)
    finally:
        gc.collect()


def main() -> int:
    """The command; 1 if a world went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.going_back", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="the number of worlds (100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (one per core)")
    parser.add_argument("--unchecked", action="store_true", help="let no broker look for losses: worlds go wrong")
    parser.add_argument("--trace", action="store_true", help="show what happened")
    arguments = parser.parse_args()
    fix_hashes("tests.simulation.going_back")
    logging.disable(logging.CRITICAL)
    if arguments.unchecked:
        unchecked()
    wrong = 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with multiprocessing.get_context("fork").Pool(arguments.jobs, maxtasksperchild=50) as pool:
        for seed, found, trace in pool.imap(judge, seeds):
            wrong += bool(found)
            if found or arguments.trace:
                shown = [text[:400] for text in found[:8]]
                print("\n".join([*(trace if arguments.trace else ()), f"seed {seed}:", *shown]), flush=True)
    print(f"{wrong} of {arguments.seeds} worlds went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
