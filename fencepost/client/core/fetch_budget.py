"""How many bytes a consumer may fetch ahead of the program, over all partitions and requests."""


class FetchBudget:
    """`limit` bytes for responses that are under way and for those with records that the program has not got yet.

    Each request reserves the maximum size of its response. Only a batch that alone is larger than the reservation
    exceeds the limit: the broker sends it all the same, because no consumer could read past it otherwise (KIP-74). So
    there are never more bytes than `limit` and one such batch for each request under way.
    """

    __slots__ = ("held", "limit", "peak", "reserved")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.reserved = 0
        self.peak = 0

    @property
    def free(self) -> int:
        return max(self.limit - self.held - self.reserved, 0)

    def reserve(self, wanted: int, least: int) -> int:
        """Set up to `wanted` bytes aside; 0 where not even `least` are free."""
        room = min(wanted, self.free)
        if room < min(least, self.limit):
            return 0
        self.reserved += room
        return room

    def settle(self, reserved: int) -> None:
        """The request is over; `hold` then counts the response's real size."""
        self.reserved -= reserved

    def hold(self, size: int) -> None:
        """A response of `size` bytes is kept."""
        self.held += size
        self.peak = max(self.peak, self.held)

    def release(self, size: int) -> None:
        """The program got all records of that response, or they were dropped."""
        self.held -= size


class Frame:
    """The bytes of one response; they stay in memory as long as one of its partitions has records left in it."""

    __slots__ = ("_budget", "_shares", "size")

    def __init__(self, budget: FetchBudget, size: int) -> None:
        self._budget = budget
        self._shares = 0
        self.size = size

    def share(self) -> "Frame":
        """One more partition holds a part of it."""
        if not self._shares:
            self._budget.hold(self.size)
        self._shares += 1
        return self

    def release(self) -> None:
        """One partition has released its part."""
        self._shares -= 1
        assert self._shares >= 0, "released more often than shared"
        if not self._shares:
            self._budget.release(self.size)
