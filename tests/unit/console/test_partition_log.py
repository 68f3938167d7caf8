"""How the console decides what became of a batch (rows I2, I3), and what it counts."""

import pytest

from fencepost.console.counting import Count
from fencepost.console.partition_log import ABORTED, COMMITTED, ENDED, OPEN, PLAIN, with_outcomes, without_marker
from fencepost.protocol.batch_header import TRANSACTIONAL_BIT, BatchHeader

Read = list[tuple[BatchHeader, str | None]]


def header(
    base: int, producer_id: int = -1, count: int = 1, *, transactional: bool = True, sequence: int = 0
) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT if transactional and producer_id >= 0 else 0
    return BatchHeader(base, 100, 0, 2, 0, attributes, count - 1, 0, 0, producer_id, 0, sequence, count)


def outcomes(read: Read, *more: object) -> list[str]:
    return [batch.outcome for batch in with_outcomes(read, *more)]  # type: ignore[arg-type]


def test_the_first_marker_behind_a_batch_decides() -> None:
    read: Read = [
        (header(0, 7), None),
        (header(1, 8), None),
        (header(2, 7), "ABORT"),
        (header(3, 7), None),
        (header(4), None),
        (header(5, 8), "COMMIT"),
        (header(6, 7), "COMMIT"),
    ]
    assert outcomes(read, 7) == [ABORTED, COMMITTED, PLAIN, COMMITTED, PLAIN, PLAIN, PLAIN]
    assert without_marker(read) == []


def test_a_marker_beyond_the_window_is_known_by_the_aborted_transactions() -> None:
    """Row I3: below the last stable offset every transaction has ended; those that aborted are listed."""
    read: Read = [(header(10, 7), None), (header(11, 8), None), (header(12, 7), None)]
    assert outcomes(read, 20, [(7, 10)]) == [ABORTED, COMMITTED, ABORTED]
    assert [one.base_offset for one in without_marker(read)] == [12, 11, 10]


def test_an_aborted_transaction_before_the_last_marker_does_not_count() -> None:
    read: Read = [(header(10, 7), None), (header(11, 7), "ABORT"), (header(12, 7), None)]
    assert outcomes(read, 20, [(7, 10)]) == [ABORTED, PLAIN, COMMITTED]
    assert outcomes(read, 20, [(7, 10), (7, 12)]) == [ABORTED, PLAIN, ABORTED]


def test_above_the_last_stable_offset_the_open_transactions_are_known_by_their_producers() -> None:
    read: Read = [(header(10, 7), None), (header(11, 8), None)]
    assert outcomes(read, 10, (), {7: 10}) == [OPEN, ENDED]
    assert outcomes(read, 10, (), {7: 11}) == [ENDED, ENDED], "an older transaction, which has ended"
    assert outcomes(read, 10, (), None) == [OPEN, OPEN], "before Kafka 2.8 no broker says"


def test_a_batch_without_a_transaction_stays_plain_among_markers() -> None:
    assert outcomes([(header(0, 7, transactional=False), None), (header(1, 7), "COMMIT")], 2) == [PLAIN, PLAIN]


def test_a_control_record_that_ends_no_transaction_decides_nothing() -> None:
    read: Read = [(header(0, 7), None), (header(1, 7), "LEADER_CHANGE")]
    assert outcomes(read, 0, (), {7: 0}) == [OPEN, PLAIN]


def test_a_picture_has_producer_ids_as_text() -> None:
    """JavaScript's numbers are exact up to 2**53 only."""
    [batch] = with_outcomes([(header(0, 2**60 + 1), None)], 1)
    assert batch.as_json()["producer"] == str(2**60 + 1)
    assert batch.as_json()["fields"]["producer id"] == str(2**60 + 1)


def test_counts() -> None:
    count = Count()
    count.take(
        [
            (header(0, 7, 3, sequence=0), None),
            (header(3, count=4), None),
            (header(7, 8, 5, sequence=0), None),
            (header(12, 7), "COMMIT"),
            (header(13, 8), "ABORT"),
            (header(14, 7, 2, sequence=3), None),
        ]
    )
    found = count.result()
    assert (found.plain, found.committed, found.aborted, found.open) == (4, 3, 5, 2)
    assert (found.batches, found.markers, found.commits, found.aborts) == (4, 2, 1, 1)
    assert (found.producers, found.gaps) == (2, 0)


@pytest.mark.parametrize(("second", "gaps"), [(3, 0), (4, 1), (2, 1), (0, 1)])
def test_a_gap_in_sequences_is_counted(second: int, gaps: int) -> None:
    count = Count()
    count.take([(header(0, 7, 3, sequence=0, transactional=False), None)])
    count.take([(header(3, 7, 1, sequence=second, transactional=False), None)])
    assert count.result().gaps == gaps


def test_sequences_wrap() -> None:
    """Row P2."""
    count = Count()
    count.take([(header(0, 7, 1, sequence=2**31 - 1, transactional=False), None)])
    count.take([(header(1, 7, 1, sequence=0, transactional=False), None)])
    assert count.result().gaps == 0
