"""How many bytes a consumer may hold that the program has not asked for yet, over all partitions and requests."""


class FetchBudget:
    """`limit` bytes for answers that are under way and for those whose records are not all given out.

    Each request reserves what its answer may be at most. The one thing that passes the limit is a batch which alone is
    larger than what was reserved: a broker sends it all the same, as nobody could read on otherwise (KIP-74). So there
    are never more bytes than `limit` and one such batch for each request under way.
    """

    __slots__ = ("held", "limit", "peak", "reserved")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.reserved = 0
        self.peak = 0

    @property
    def free(self) -> int:
        """What may still be asked for."""
        return max(self.limit - self.held - self.reserved, 0)

    def reserve(self, wanted: int, least: int) -> int:
        """Set up to `wanted` bytes aside; 0 where not even `least` are free."""
        room = min(wanted, self.free)
        if room < min(least, self.limit):
            return 0
        self.reserved += room
        return room

    def settle(self, reserved: int) -> None:
        """The request is over; what its answer really holds is told by `hold`."""
        self.reserved -= reserved

    def hold(self, size: int) -> None:
        """An answer of so many bytes is kept."""
        self.held += size
        self.peak = max(self.peak, self.held)

    def release(self, size: int) -> None:
        """All of that answer was given out or dropped."""
        self.held -= size


class Frame:
    """One answer's bytes, which stay in memory as long as any of its partitions has records in it to give."""

    __slots__ = ("_budget", "_shares", "size")

    def __init__(self, budget: FetchBudget, size: int) -> None:
        self._budget = budget
        self._shares = 0
        self.size = size

    def share(self) -> "Frame":
        """One more partition keeps a part of it."""
        if not self._shares:
            self._budget.hold(self.size)
        self._shares += 1
        return self

    def give_back(self) -> None:
        """One partition has no more use of its part."""
        self._shares -= 1
        assert self._shares >= 0, "given back more often than shared"
        if not self._shares:
            self._budget.release(self.size)
