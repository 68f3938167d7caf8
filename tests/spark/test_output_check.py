"""Negative controls of the play of kills: a planted duplicate, loss, change and torn transaction are found."""

import pytest

from tests.spark.output_check import faults, torn, transactions, value_of

Row = tuple[int, int, bytes, bytes]
VALUES = [value_of(transaction, number, 4) for transaction in range(5) for number in range(4)]
ROWS: list[Row] = [(at % 3, at // 3, b"key", value) for at, value in enumerate(VALUES)]


def test_an_output_that_is_the_input_has_no_fault_in_any_order() -> None:
    assert faults(ROWS, reversed(ROWS)) == []
    assert torn(VALUES[::-1]) == []
    assert transactions(VALUES) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (ROWS[:7] + ROWS[8:], ["1 of 20 rows are missing"]),
        ([*ROWS, ROWS[7]], ["1 rows are there twice or more"]),
        ([*ROWS, (0, 99, b"key", VALUES[0])], ["1 rows are not of the input"]),
        ([(0, 0, b"other", VALUES[0]), *ROWS[1:]], ["1 of 20 rows are missing", "1 rows are not of the input"]),
        ([*ROWS[:7], ROWS[8], *ROWS[8:]], ["1 of 20 rows are missing", "1 rows are there twice or more"]),
    ],
    ids=["loss", "duplicate", "aborted", "change", "as many rows"],
)
def test_a_planted_fault_is_found(found: list[Row], told: list[str]) -> None:
    assert [fault.partition(":")[0] for fault in faults(ROWS, found)] == told


def test_a_transaction_that_is_there_in_part_is_torn() -> None:
    assert torn(VALUES[:6]) == ["1 transactions are there in part: [1]"]
    assert torn([]) == []
