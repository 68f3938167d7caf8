"""What the network of a simulated world does to whom: drawn from the seed, until it calms down."""

from collections.abc import Collection
from dataclasses import replace
from random import Random

from tests.kit.sim_network import Fate, Request

FETCH = 1


class SeededWeather:
    """Delays of some ms, and now and then something worse.

    `spared` are clients whose requests are never held back or repeated: those of TV1, whom that would harm as it harms
    them with any broker (KAFKA-17754). Of the requests called `never_late` what was held back is lost: then a world
    shows whether it is they that did harm.
    """

    def __init__(self, random: Random, never_late: Collection[str] = ()) -> None:
        self._random = random
        self._never_late = never_late
        self.spared: set[str] = set()
        self.calm = False
        self._slowest = random.choice((0.002, 0.01, 0.05))
        self._lost = random.choice((0.0, 0.01, 0.03))
        self._cut = random.choice((0.0, 0.02, 0.05))
        self._late = random.choice((0.0, 0.02, 0.08))
        self._twice = random.choice((0.0, 0.02, 0.08))
        self._latest = random.choice((0.05, 0.5, 3.0))

    def dial(self, client_id: str) -> Fate:
        """Takes a moment; one in fifty is refused."""
        refused = not self.calm and self._random.random() < 0.02
        return Fate(self._delay(), "before" if refused else None)

    def request(self, request: Request) -> Fate:
        """Lost, held back beyond its connection, repeated, or answered to nobody."""
        fate = self._fate(request)
        late = fate.copy_seconds is not None and request.name.partition(" ")[0] in self._never_late
        return replace(fate, copy_seconds=None) if late else fate

    def _fate(self, request: Request) -> Fate:
        delay, copies = self._delay(), request.client_id not in self.spared and request.api_key != FETCH
        if self.calm:
            return Fate(delay)
        draw = self._random.random()
        if draw < self._lost:
            return Fate(delay, "before")
        draw -= self._lost
        if draw < self._cut:
            return Fate(delay, "after")
        draw -= self._cut
        if draw < self._late and copies:
            return Fate(delay, "before", self._random.uniform(0, self._latest))
        draw -= self._late
        if draw < self._twice and copies:
            return Fate(delay, None, self._random.uniform(0, self._latest))
        return Fate(delay)

    def answer(self, request: Request) -> Fate:
        """Now and then one is lost."""
        lost = not self.calm and self._random.random() < self._cut
        return Fate(self._delay(), "before" if lost else None)

    def _delay(self) -> float:
        return self._random.uniform(0.0005, self._slowest)
