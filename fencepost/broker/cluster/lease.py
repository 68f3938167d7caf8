"""A broker's lease: renewed in time, and confirmed by the database for answers that rest on it."""

import logging
import math
from collections.abc import Callable
from functools import partial

import trio

from fencepost.broker.cluster.engine import Fenced
from fencepost.broker.cluster.guest_rows import GuestRows
from fencepost.broker.cluster.writer import Stopped, Writer

logger = logging.getLogger(__name__)


class Lease:
    """The lease of one run. Each renewal also absorbs the rows of guests."""

    def __init__(
        self, writer: Writer, lease_ms: int, guest_rows: GuestRows, over: trio.Event, taken_over: Callable[[], None]
    ) -> None:
        """`over` is set when the run ends; `taken_over` ends it."""
        self.guest_rows = guest_rows
        self._writer = writer
        self._lease_ms = lease_ms
        self._over, self._taken_over = over, taken_over
        self._renewal_wanted = trio.Event()
        self._renewed = trio.Event()
        self._confirmed_at = -math.inf
        """When the last look began that found this broker's place and the rows of guests."""

    @property
    def holds(self) -> bool:
        """Whether clients may use this broker's logs: it has renewed its lease in time.

        Otherwise another broker may own them already. What this one commits cannot become wrong, but what it reads
        may be old, and its clients must look for the new leader.
        """
        writer = self._writer
        return not writer.fenced and writer.idle_seconds * 1000 < self._lease_ms

    def now(self) -> float:
        """The time, for `confirm`."""
        return self._writer.now()

    async def keep(self) -> None:
        """Renew the lease until the broker is taken over, or cancelled; also while the broker starts."""
        while not self._over.is_set():
            with trio.move_on_after(self._lease_ms / 4000):
                await self._renewal_wanted.wait()
            self._renewal_wanted = trio.Event()
            began = self.now()
            try:
                if await self._look_and_renew():
                    self._confirmed_at = began
            except* (Fenced, Stopped) as error:
                logger.warning("this broker lost its place in the cluster: %s", error.exceptions[0])
                self._taken_over()
            finally:
                self._renewed.set()
                self._renewed = trio.Event()

    async def _look_and_renew(self) -> bool:
        """Renew the lease, and meanwhile absorb markers of other brokers. Returns whether that succeeded, too."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(trio.to_thread.run_sync, self._writer.renew, abandon_on_cancel=True))
            return await self.guest_rows.absorb()

    async def confirm(self, since: float) -> bool:
        """Whether the database has confirmed at `since` or later that this broker has its place, and has shown it the
        rows of guests.

        Waits for that until the lease ends.
        """
        while max(self._confirmed_at, self._writer.renewed_at if self.guest_rows.impossible else -math.inf) < since:
            if not self.holds:
                return False
            self._renewal_wanted.set()
            with trio.move_on_after(self._lease_ms / 1000):
                await self._renewed.wait()
        return True
