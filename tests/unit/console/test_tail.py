"""What a live tail shows of a fetched partition, by isolation level."""

from typing import Any

from fencepost.client.admin.fetching import Fetched
from fencepost.console.pages.tail import merged, shown
from fencepost.protocol.topics import TopicPartition
from tests.kit.batch_log import BatchLog

PLACE = TopicPartition("t", 0)


def fetched(log: BatchLog, *aborted: tuple[int, int]) -> Fetched:
    return Fetched(b"".join(map(bytes, log.batches)), 0, log.end, log.end, aborted)


def offsets(found: list[dict[str, Any]]) -> list[tuple[int, str | None]]:
    return [(one["offset"], one["marker"]) for one in found]


def log() -> BatchLog:
    """An aborted transaction at 0 and 1, a marker at 2, a committed one at 3, a marker at 4."""
    made = BatchLog()
    made.transaction([b"a", b"b"], 7, False)
    made.transaction([b"c"], 8, True)
    return made


def test_read_committed_shows_what_a_consumer_gets() -> None:
    """Row I2."""
    found, position, _ = shown(PLACE, fetched(log(), (7, 0)), 0, False, 100)
    assert (offsets(found), position) == ([(3, None)], 5)
    assert found[0]["value"] == {"text": "c", "form": "text", "size": 1}


def test_read_uncommitted_shows_all_records_and_how_their_transactions_ended() -> None:
    found, _, _ = shown(PLACE, fetched(log()), 0, True, 100)
    assert offsets(found) == [(0, None), (1, None), (2, "ABORT"), (3, None), (4, "COMMIT")]


def test_records_before_the_position_are_left_out() -> None:
    found, _, _ = shown(PLACE, fetched(log()), 1, True, 100)
    assert offsets(found)[0] == (1, None)


def test_values_that_are_no_text_are_shown_as_hexadecimal_digits() -> None:
    made = BatchLog()
    made.write([b"\xff\x00", "é".encode() * 3000])
    found, _, _ = shown(PLACE, fetched(made), 0, False, 100)
    assert found[0]["value"] == {"text": "ff 00", "form": "hex", "size": 2}
    assert (found[1]["value"]["form"], len(found[1]["value"]["text"])) == ("text", 2000)


def test_a_damaged_batch_is_named_and_the_tail_goes_on() -> None:
    part = fetched(log())._replace(records=b"\x00" * 80)
    found, position, _ = shown(PLACE, part, 0, False, 100)
    assert "unreadable" in found[0]["marker"]
    assert position == part.last_stable_offset


def test_of_many_records_the_last_are_shown_and_the_others_counted() -> None:
    made = BatchLog()
    for _ in range(5):
        made.write([b"x"] * 10)
    found, position, left_out = shown(PLACE, fetched(made), 3, False, 12)
    assert [one["offset"] for one in found] == list(range(38, 50))
    assert (position, left_out) == (50, 35)


def test_partitions_are_merged_by_time_and_each_stays_in_order() -> None:
    rows = [{"partition": p, "offset": o, "time": t} for p, o, t in [(0, 7, 30), (0, 8, 10), (1, 1, 20), (1, 2, 40)]]
    assert [(one["partition"], one["offset"]) for one in merged(rows)] == [(1, 1), (0, 7), (0, 8), (1, 2)]
