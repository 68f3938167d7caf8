"""What another broker has answered rests on commits of the database, which a failover can lose."""

import math

import trio

from fencepost.broker.place import Place


class Positions:
    """Notes how many commits there are, after another broker has answered: so this broker notices if they get fewer."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._looking = trio.Lock()
        self._looked_at = -math.inf
        """When the last look began."""

    async def note(self) -> None:
        """Requests share one look. Raises PeerUnavailable."""
        since = trio.current_time()
        async with self._looking:
            if self._looked_at < since:
                began = trio.current_time()
                await self._place.position()
                self._looked_at = began
