"""Where an aborted transaction goes back to in one partition, also while a commit is under way. Pure.

A commit counts for what was given before its offset was taken, whenever it is answered: a `seek` in between comes after
it, as if it had been answered at once. So from then on the partition has two points: one if the commit does not happen,
and one if it does. The answer tells which of them is true.
"""

from fencepost.client.core.whole import Place
from fencepost.protocol.topics import TopicPartition


class RewindPoint:
    """`point` is the offset that an abort goes back to.

    `unsaved`: records were given and not committed, and the position is elsewhere by now, so the point is before them.
    """

    __slots__ = ("point", "unsaved")

    def __init__(self, point: int | None = None) -> None:
        self.point = point
        self.unsaved = False

    def has_uncommitted(self, position: int | None) -> bool:
        """Whether something was given that is not committed, when the next record is at `position`."""
        return self.unsaved or (position is not None and position != self.point)


class RewindPoints(RewindPoint):
    """The point as far as it is known, and one for each commit that is under way."""

    __slots__ = ("_promised",)

    def __init__(self) -> None:
        super().__init__()
        self._promised: list[RewindPoint] = []

    def promise(self, offset: int) -> RewindPoint:
        """A commit of `offset` begins: the point if it happens. It ends with `keep` or `drop`."""
        point = RewindPoint(offset)
        self._promised.append(point)
        return point

    def keep(self, point: RewindPoint) -> None:
        """The commit has happened."""
        self._promised.remove(point)
        self.point, self.unsaved = point.point, point.unsaved

    def drop(self, point: RewindPoint) -> None:
        """The commit has not happened, or it is unknown."""
        self._promised.remove(point)

    def leave(self, position: int | None) -> None:
        """`position` is about to change: remember whether records before it are not committed."""
        for point in (self, *self._promised):
            point.unsaved = point.has_uncommitted(position)

    def begin(self, offset: int) -> None:
        """Reading goes on at `offset`: an abort goes back to it, or to the records before that are unsaved."""
        for point in (self, *self._promised):
            if not point.unsaved:
                point.point = offset

    def back(self) -> None:
        """All that was given since the point is given again."""
        for point in (self, *self._promised):
            point.unsaved = False


class UnitRewindPoint:
    """The same for whole transactions, of all partitions: where an abort goes back to, and whether units were given
    since."""

    __slots__ = ("given", "safe")

    def __init__(self, safe: dict[TopicPartition, Place]) -> None:
        self.safe = safe
        self.given = False
