"""The picture of a share partition: which offsets become which rectangles."""

from fencepost.client.admin.lag import Reach
from fencepost.client.admin.queues import QueuePartition
from fencepost.client.admin.share_types import RecordRange, RecordStates, ShareGroupOffset
from fencepost.console.queue_picture import COLUMNS, FLIGHT_SHARE, HEIGHT, WIDTH, Picture, picture
from fencepost.protocol.topics import TopicPartition


def part(start: int, after: int, high: int, *ranges: RecordRange, stable: int | None = None) -> QueuePartition:
    states = RecordStates(start, after, ranges, complete=True)
    reach = Reach(0, high if stable is None else stable, high)
    return QueuePartition(TopicPartition("t", 0), ShareGroupOffset(start, 0, high - start, states), reach, None)


def drawn(one: QueuePartition, *, read_committed: bool = False) -> Picture:
    found = picture(one, read_committed=read_committed)
    assert found is not None
    return found


def test_few_records_have_a_column_each_and_neighbours_alike_are_one() -> None:
    ranges = RecordRange(0, 4, "acquired", 1, "one"), RecordRange(5, 5, "acknowledged", 1)
    found = drawn(part(0, 8, 8, *ranges, RecordRange(7, 7, "archived", 5)))
    boxes = [(box.x, box.width, box.height, box.state, box.first, box.last) for box in found.boxes]
    assert boxes == [
        (0, 625, HEIGHT, "acquired", 0, 4),
        (625, 125, HEIGHT, "acknowledged", 5, 5),
        (750, 125, HEIGHT, "new", 6, 6),
        (875, 125, HEIGHT, "archived", 7, 7),
    ]
    assert (found.next_x, found.start, found.next, found.end) == (WIDTH, 0, 8, 8)


def test_many_records_are_drawn_in_columns_by_their_shares() -> None:
    """10,000 ranges would be 10,000 rectangles, drawn again every 2 s."""
    states = ("acquired", "acknowledged")
    ranges = [RecordRange(at, at, states[at % 2], 1) for at in range(10_000)]
    found = drawn(part(0, 10_000, 10_000, *ranges))
    assert len(found.boxes) == 2 * COLUMNS
    assert [(box.y, box.height, box.state) for box in found.boxes[:2]] == [
        (0, HEIGHT / 2, "acquired"),
        (HEIGHT / 2, HEIGHT / 2, "acknowledged"),
    ]
    assert sum(box.last - box.first + 1 for box in found.boxes[::2]) == 10_000


def test_what_waits_leaves_room_for_what_is_in_flight() -> None:
    """One record of a million would not be seen."""
    found = drawn(part(0, 1, 1_000_000, RecordRange(0, 0, "acquired", 1, "one")))
    assert [(box.x, box.width, box.state) for box in found.boxes] == [
        (0, WIDTH * FLIGHT_SHARE, "acquired"),
        (WIDTH * FLIGHT_SHARE, WIDTH - WIDTH * FLIGHT_SHARE, "new"),
    ]


def test_what_is_above_the_last_stable_offset_pends_for_committed_readers_only() -> None:
    one = part(0, 0, 10, stable=4)
    assert [(box.state, box.first, box.last) for box in drawn(one, read_committed=True).boxes] == [
        ("new", 0, 3),
        ("open", 4, 9),
    ]
    assert [box.state for box in drawn(one).boxes] == ["new"]
    assert drawn(part(7, 7, 7)).boxes == ()


def test_a_broker_that_reports_no_states_has_no_picture() -> None:
    one = part(0, 0, 10)
    assert picture(one._replace(offset=ShareGroupOffset(0, 0, 10)), read_committed=False) is None
