"""Picks the least and the most loaded of some members, again and again, without sorting them again.

It keeps two ranges of the sorted members, each of one level of load. Each pick assumes that the member gains, or loses,
one partition. When a whole range was picked, its level moves by one, and the range grows by the members of that level::

                         most loaded
      load              ##<-   ]##     the least loaded range grows to the right, the most loaded one to the left;
              ->    ]##[#######]##     the end is when their levels are at most one apart, not when they touch. At the
      least  [######]##[#######]##     far right are members that had no partition to give.
             +-------------------->  members
"""

from collections.abc import Sequence


class Balancer:
    """Works on `loads`, the number of partitions by member, which the caller changes as it moves partitions."""

    def __init__(self, loads: Sequence[int], members: Sequence[int]) -> None:
        self._loads = loads
        self._sorted = sorted(members, key=lambda member: (loads[member], member))
        lowest, highest = loads[self._sorted[0]], loads[self._sorted[-1]]
        self.imbalance = highest - lowest
        self._low_end = 0
        self._low_level = lowest - 1
        self._next_low = 0
        self._high_start = self._high_end = len(self._sorted)
        self._high_level = highest + 1
        self._next_high = len(self._sorted) - 1

    def is_balanced(self) -> bool:
        return self._high_level - self._low_level <= 1

    def least_loaded(self) -> int:
        """The member to give the next partition to."""
        if self._next_low >= self._low_end:
            self._low_level += 1
            while self._low_end < len(self._sorted) and self._load(self._low_end) == self._low_level:
                self._low_end += 1
            self._next_low = 0
        found = self._sorted[self._next_low]
        self._next_low += 1
        return found

    def most_loaded(self) -> int | None:
        """The member to take the next partition from; None if all remaining ones were excluded."""
        if self._next_high < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                # The whole range was excluded: start again at the next lower level that a member has.
                self._high_level = self._load(self._high_start - 1)
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._load(self._high_start - 1) == self._high_level:
                self._high_start -= 1
            self._next_high = self._high_end - 1
        if self._next_high < 0:
            return None
        found = self._sorted[self._next_high]
        self._next_high -= 1
        return found

    def exclude_most_loaded(self) -> None:
        """Exclude the member that `most_loaded` has just returned: it has no partition to give."""
        at, end = self._next_high + 1, self._high_end - 1
        self._sorted[at], self._sorted[end] = self._sorted[end], self._sorted[at]
        self._high_end -= 1

    def _load(self, place: int) -> int:
        return self._loads[self._sorted[place]]
