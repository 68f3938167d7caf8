"""Where an aborted transaction goes back to in one partition, also while a commit is under way. Pure.

A commit counts for what was given before its offset was taken, whatever happens until it is answered: a `seek` in that
time comes after it, as if it had been answered at once. So from then on two stories are told of the partition: one in
which the commit has not happened, and one in which it has. The answer tells which one is true.
"""

from fencepost.client.core.whole import Place
from fencepost.protocol.topics import TopicPartition


class Story:
    """`point` is where an abort goes back to; `unsaved`: records were given and not committed, and the position is
    elsewhere by now, so that is before them."""

    __slots__ = ("point", "unsaved")

    def __init__(self, point: int | None = None) -> None:
        self.point = point
        self.unsaved = False

    def untold(self, position: int | None) -> bool:
        """Whether something was given that is not committed, when the next record is at `position`."""
        return self.unsaved or (position is not None and position != self.point)


class GoingBack(Story):
    """The story as far as it is known, and one for each commit that is under way."""

    __slots__ = ("_promised",)

    def __init__(self) -> None:
        super().__init__()
        self._promised: list[Story] = []

    def promise(self, offset: int) -> Story:
        """A commit of `offset` begins: what follows is told as if it had happened, too. It ends by `keep` or `drop`."""
        story = Story(offset)
        self._promised.append(story)
        return story

    def keep(self, story: Story) -> None:
        """It has happened."""
        self._promised.remove(story)
        self.point, self.unsaved = story.point, story.unsaved

    def drop(self, story: Story) -> None:
        """It has not, or nobody knows."""
        self._promised.remove(story)

    def leave(self, position: int | None) -> None:
        """`position` is about to be another one: remember whether records before it are not committed."""
        for story in (self, *self._promised):
            story.unsaved = story.untold(position)

    def begin(self, offset: int) -> None:
        """Reading goes on at `offset`: an abort goes back to it, or to the records before that are unsaved."""
        for story in (self, *self._promised):
            if not story.unsaved:
                story.point = offset

    def back(self) -> None:
        """All that was given since the point is given again."""
        for story in (self, *self._promised):
            story.unsaved = False


class Base:
    """The same for whole transactions, of all partitions: where an abort goes back to, and whether units were given
    since."""

    __slots__ = ("given", "safe")

    def __init__(self, safe: dict[TopicPartition, Place]) -> None:
        self.safe = safe
        self.given = False
