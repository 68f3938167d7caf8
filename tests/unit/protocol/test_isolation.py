"""Row I2, the client's rule: what read_committed leaves out of a fetch."""

import struct

import pytest

from fencepost.protocol.batch_header import CONTROL_BIT, CorruptBatch, iter_headers
from fencepost.protocol.control_records import end_txn_marker
from fencepost.protocol.isolation import AbortedFilter
from fencepost.protocol.record_batch import build_batch


def data(offset: int, producer_id: int, count: int = 1, transactional: bool = True) -> bytearray:
    records = [(0, None, b"x", ())] * count
    return build_batch(
        records, base_offset=offset, producer_id=producer_id, producer_epoch=0, transactional=transactional
    )


def marker(offset: int, producer_id: int, commit: bool) -> bytearray:
    return end_txn_marker(producer_id, 0, commit, 0, 0, base_offset=offset)


def admitted(aborted: list[tuple[int, int]] | None, *batches: bytearray) -> list[int]:
    buffer = b"".join(batches)
    chosen = AbortedFilter(aborted)
    return [header.base_offset for at, header in iter_headers(buffer) if chosen.admits(header, buffer, at)]


def test_an_aborted_run_is_left_out_up_to_its_marker_and_the_next_transaction_is_seen() -> None:
    log = [data(0, 1), data(1, 1), marker(2, 1, False), data(3, 1), marker(4, 1, True)]
    assert admitted([(1, 0)], *log) == [3]


def test_transactions_of_several_producers_interleave() -> None:
    log = [data(0, 1), data(1, 2), data(2, 1), marker(3, 1, False), data(4, 2), data(5, 1), marker(6, 2, True)]
    assert admitted([(1, 0)], *log) == [1, 4, 5]


def test_a_list_in_any_order_is_understood() -> None:
    log = [
        data(0, 1),
        marker(1, 1, False),
        data(2, 2),
        marker(3, 2, False),
        data(4, 1),
        marker(5, 1, False),
        data(6, 1),
    ]
    for aborted in ([(1, 0), (2, 2), (1, 4)], [(1, 4), (2, 2), (1, 0)]):
        assert admitted(aborted, *log) == [6]


def test_a_transaction_that_begins_within_a_batch_counts_from_that_batch_on() -> None:
    assert admitted([(1, 3)], data(0, 1, count=5), marker(5, 1, False)) == []


def test_a_commit_marker_does_not_end_an_aborted_run() -> None:
    log = [data(0, 1), marker(1, 1, True), data(2, 1), marker(3, 1, False), data(4, 1)]
    assert admitted([(1, 0)], *log) == [4]


def test_a_fetch_that_starts_behind_the_first_record_still_hides_the_rest() -> None:
    assert admitted([(1, 0)], data(7, 1), marker(8, 1, False), data(9, 1)) == [9]


def test_what_is_not_transactional_is_always_seen() -> None:
    log = [data(0, 1), data(1, 1, transactional=False), data(2, -1, transactional=False), marker(3, 1, False)]
    assert admitted([(1, 0)], *log) == [1, 2]


@pytest.mark.parametrize("aborted", [None, []])
def test_without_a_list_only_the_markers_are_left_out(aborted: list[tuple[int, int]] | None) -> None:
    assert admitted(aborted, data(0, 1), marker(1, 1, False), data(2, 1), marker(3, 1, True)) == [0, 2]


def test_control_batches_of_later_protocols_are_left_out_and_end_nothing() -> None:
    later = build_batch(
        [(0, struct.pack(">hh", 0, 77), b"", ())], base_offset=1, producer_id=1, extra_attributes=CONTROL_BIT
    )
    assert admitted([(1, 0)], data(0, 1), later, data(2, 1), marker(3, 1, False)) == []


def test_a_control_batch_without_a_type_is_corrupt() -> None:
    broken = build_batch([(0, None, b"", ())], base_offset=1, producer_id=1, extra_attributes=CONTROL_BIT)
    with pytest.raises(CorruptBatch):
        admitted([(1, 0)], data(0, 1), broken)
