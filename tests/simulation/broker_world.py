"""What every world with a whole broker has: a simulated network, a trace, and ways to strike the broker."""

from collections.abc import Callable, Collection
from random import Random

import trio

from tests.kit.sim_broker import SimBroker
from tests.kit.sim_network import SimNetwork
from tests.simulation.lines import Line, create_topics
from tests.simulation.weather import SeededWeather

AMID_SECONDS = 2.0
"""So long a blow waits for its call to the disk; an idle broker is struck without one."""


class BrokerWorld:
    """The world of one seed: `random` is its chance, `trace` what happened."""

    network: SimNetwork
    broker: SimBroker

    def __init__(self, random: Random, trace: list[str], never_late: Collection[str]) -> None:
        self.random = random
        self.weather = SeededWeather(self.fork(), never_late)
        self._trace = trace
        self._lines: list[Line] = []

    def fork(self) -> Random:
        """Chance for somebody who draws at his own times."""
        return Random(self.random.getrandbits(64))

    def tell(self, event: str) -> None:
        """One line of the trace."""
        self._trace.append(f"{trio.current_time():9.4f} {event}")

    def line(self, client_id: str) -> Line:
        """A client's line to the broker."""
        self._lines.append(Line(self.network, client_id))
        return self._lines[-1]

    async def create_topics(self, line: Line, partitions: dict[str, int]) -> dict[str, bytes]:
        """Make topics with these numbers of partitions before anything goes wrong; their ids by name."""
        self.weather.calm = True
        ids = await create_topics(line, partitions)
        self.weather.calm = False
        return ids

    async def crash(self) -> None:
        """Kill -9, and a new start."""
        self.broker.kill()
        await self.broker.ended()
        assert await self.broker.start(), self.broker.failure

    async def strike_amid(
        self,
        strike: Callable[[], None],
        calls: int,
        *,
        flushes_only: bool = False,
        passes: int = 0,
        broker: SimBroker | None = None,
    ) -> None:
        """End this life of the broker, or of this one of several, by `strike`, in the middle of something.

        That is at this many calls to its disk, or those of them that flush a file, or so many passes of the event loop
        later; 0 passes: within the call.
        """
        struck = broker or self.broker
        disk, reached = struck.disk, trio.Event()

        def strike_once() -> None:
            if struck.disk is disk:  # it lives still
                strike()

        def before_io(kind: str, path: str) -> None:
            nonlocal calls
            calls -= not flushes_only or kind == "fdatasync"
            if calls == 0:
                disk.before_io = None
                if not passes:
                    strike_once()
                reached.set()

        disk.before_io = before_io
        with trio.move_on_after(AMID_SECONDS):
            await reached.wait()
            for _ in range(passes):
                await trio.lowlevel.checkpoint()
        disk.before_io = None
        strike_once()

    def close_lines(self) -> None:
        """Everybody's connections end."""
        for line in self._lines:
            line.close()
