"""Where an abort goes back to, whatever is read, sought and committed at once: as if each commit that succeeded had
been answered the moment its offset was taken."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.core.rewind_points import RewindPoint, RewindPoints

Event = tuple[str, int]
EVENTS = st.lists(
    st.tuples(st.sampled_from(["read", "read", "seek", "commit", "answer", "refuse", "abort"]), st.integers(0, 20)),
    max_size=40,
)


class Commit(NamedTuple):
    """One that is under way, and where in the history its offset was taken."""

    point: RewindPoint
    offset: int
    since: int


def told(begin: int, position: int, history: list[Event]) -> tuple[int, bool]:
    """The place and whether anything uncommitted stands before the position, by the guide's own words."""
    point, unsaved = begin, False
    for what, number in history:
        if what == "read":
            position = number
        elif what == "seek":
            unsaved = unsaved or position != point
            point, position = point if unsaved else number, number
        else:
            unsaved, position = False, number
    return point, unsaved


@given(EVENTS)
def test_an_answer_may_come_at_any_time(events: list[Event]) -> None:
    back = RewindPoints()
    back.begin(0)
    position = 0
    start = (0, 0)  # where the true story begins: the committed offset, and the position at that moment
    history: list[Event] = []
    positions = [0]
    under_way: list[Commit] = []
    since = 0
    for what, number in events:
        if what == "read":
            position += 1 + number % 3
            history.append(("read", position))
        elif what == "seek":
            back.leave(position)
            position = number
            back.begin(position)
            history.append(("seek", position))
        elif what == "commit":
            under_way.append(Commit(back.begin_commit(position), position, len(history)))
        elif what in ("answer", "refuse") and under_way:
            commit = under_way.pop(number % len(under_way))
            if what == "answer":
                back.keep(commit.point)
                start, since = (commit.offset, positions[commit.since]), commit.since
            else:
                back.drop(commit.point)
        elif what == "abort":
            back.back()
            assert back.point is not None
            position = back.point
            history.append(("abort", position))
        positions += [position] * (len(history) + 1 - len(positions))
        assert (back.point, back.unsaved) == told(*start, history[since:])
