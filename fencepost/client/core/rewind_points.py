"""The position to which an aborted transaction rewinds a partition, also while a commit is under way. Pure.

A commit covers the records before its offset, whenever its response comes. A `seek` in between comes after
it, as if the commit had succeeded at once. So the partition has two points meanwhile: one if the commit fails,
and one if it succeeds. The response decides between them.
"""

from fencepost.client.core.transaction_assembler import Place
from fencepost.protocol.topics import TopicPartition


class RewindPoint:
    """`point` is the offset to which an abort rewinds.

    `unsaved`: the program got records that are not committed, and the position has moved elsewhere since.
    """

    __slots__ = ("point", "unsaved")

    def __init__(self, point: int | None = None) -> None:
        self.point = point
        self.unsaved = False

    def has_uncommitted(self, position: int | None) -> bool:
        """Whether the program got records that are not committed, when the next record is at `position`."""
        return self.unsaved or (position is not None and position != self.point)


class RewindPoints(RewindPoint):
    """The current point, and one for each commit that is under way."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[RewindPoint] = []

    def begin_commit(self, offset: int) -> RewindPoint:
        """Begin a commit of `offset`; returns the point if it succeeds. It ends with `keep` or `drop`."""
        point = RewindPoint(offset)
        self._pending.append(point)
        return point

    def keep(self, point: RewindPoint) -> None:
        self._pending.remove(point)
        self.point, self.unsaved = point.point, point.unsaved

    def drop(self, point: RewindPoint) -> None:
        """The commit has failed, or its outcome is unknown."""
        self._pending.remove(point)

    def leave(self, position: int | None) -> None:
        """`position` is about to change: remember whether records before it are not committed."""
        for point in (self, *self._pending):
            point.unsaved = point.has_uncommitted(position)

    def begin(self, offset: int) -> None:
        """Reading continues at `offset`: an abort rewinds to it, or to earlier records that are unsaved."""
        for point in (self, *self._pending):
            if not point.unsaved:
                point.point = offset

    def back(self) -> None:
        """The program gets all records since the point again."""
        for point in (self, *self._pending):
            point.unsaved = False


class UnitRewindPoint:
    """The same for whole transactions, of all partitions: where an abort rewinds to, and whether units were given
    since."""

    __slots__ = ("given", "safe")

    def __init__(self, safe: dict[TopicPartition, Place]) -> None:
        self.safe = safe
        self.given = False
