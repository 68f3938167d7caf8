"""The commit marker: what it says, and when a batch is written, was written, or cannot be told."""

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from fencepost.client.core.group_types import CommittedOffset
from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.sink.commit import marker_place
from fencepost.spark_connector.sink.commit_marker import NO_BATCH, BatchId, Marker, find_marker, is_done
from fencepost.spark_connector.sink.encode import SinkError
from fencepost.spark_connector.sink.options import SinkOptions

T0 = TopicPartition("t", 0)


def test_a_mark_is_found_again_as_it_was_left_and_its_offset_is_the_next_batch() -> None:
    for marker in (Marker(T0, "q", 41), Marker(T0, "q", 0, "me"), Marker(T0, "", NO_BATCH, "me")):
        committed = marker.committed()
        assert committed.offset == marker.batch_id + 1
        assert len(committed.metadata) < 4096, "offset.metadata.max.bytes"
        assert find_marker("g", {T0: committed}) == marker
    assert find_marker("g", {}) is None


@pytest.mark.parametrize("note", ["", "hello", "{}", '{"format": "other/1"}', "[]"])
def test_a_group_that_consumers_use_is_no_place_for_a_commit_marker(note: str) -> None:
    with pytest.raises(SinkError, match="consumers use this group"):
        find_marker("g", {T0: CommittedOffset(5, -1, note)})


@pytest.mark.parametrize(
    ("marker", "batch", "first_batch", "told"),
    [
        (None, 0, None, False),
        (None, 5, 5, False),
        (None, 5, None, "has no commit marker, although this is batch 5 .* firstBatch = 5"),
        (None, 6, 5, "has no commit marker"),
        (Marker(T0, "", NO_BATCH, "me"), 0, None, False),
        (Marker(T0, "", NO_BATCH, "me"), 5, None, "has no commit marker"),
        (Marker(T0, "q", 4), 5, None, False),
        (Marker(T0, "q", 5), 5, None, True),
        (Marker(T0, "q", 2), 5, None, False),
        (Marker(T0, "q", 6), 5, None, "has batch 6 of this query already"),
        (Marker(T0, "other", 6), 0, None, "its checkpoint was deleted, .* delete the group 'sink'"),
        (Marker(T0, "other", 6), 7, None, "another kafka.transactional.id"),
    ],
)
def test_what_the_mark_says_of_a_batch(
    marker: Marker | None, batch: int, first_batch: int | None, told: bool | str
) -> None:
    if isinstance(told, bool):
        assert is_done("sink", marker, BatchId("q", batch), first_batch) is told
    else:
        with pytest.raises(SinkError, match=told):
            is_done("sink", marker, BatchId("q", batch), first_batch)


def test_the_mark_stays_where_it_is_and_begins_where_the_records_go() -> None:
    fixed, by_row = SinkOptions("a:1", "s", topic="t"), SinkOptions("a:1", "s")
    assert marker_place(fixed, None, ["x"]) == T0
    assert marker_place(by_row, None, ["y", "x"]) == TopicPartition("x", 0)
    assert marker_place(by_row, None, []) == TopicPartition("__consumer_offsets", 0)
    assert marker_place(fixed, Marker(TopicPartition("old", 0), "q", 3), ["x"]) == TopicPartition("old", 0)
