"""The request that arrives on one connection: how long it takes, and whether it has to wait for memory."""

from fencepost.broker.byte_budget import ByteBudget
from fencepost.broker.network.frames import KEPT_BYTES, FrameBuffer


class Arrival:
    """What the sweep of the server learns about an unfinished request. Requests that arrive at once cost nothing."""

    __slots__ = ("_budget", "_frames", "_requests", "_since", "waits_for_room")

    def __init__(self, frames: FrameBuffer, budget: ByteBudget) -> None:
        self._frames = frames
        self._budget = budget
        self._requests = -1
        self._since = 0.0
        self.waits_for_room = False
        """The budget of request bytes is used up: the connection reads nothing."""

    def since(self, now: float, requests: int, idle: bool) -> float:
        """Since when the next request has been arriving, to the interval of the calls; `now` if none is.

        `requests` is how many arrived before; `idle` is whether the connection waits for input.
        """
        is_reading = idle or self.waits_for_room
        if not self._frames.pending_bytes or not is_reading or self._requests != requests:
            self._requests, self._since = requests, now
        return self._since

    @property
    def holds_memory(self) -> bool:
        """Whether a part of a large request is in memory, and the connection reads the rest."""
        return self._frames.pending_bytes > KEPT_BYTES and not self.waits_for_room

    async def wait_for_room(self) -> None:
        """Wait until other connections have released memory for requests."""
        self.waits_for_room = True
        try:
            await self._budget.wait()
        finally:
            self.waits_for_room = False
