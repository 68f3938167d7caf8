"""Combining state batches, by rule; `tests/property/test_share_states.py` compares it with a model of each offset."""

import pytest

from fencepost.coordinator.share.batches import combine
from fencepost.coordinator.share.values import UNINITIALIZED, StateBatch, StateUpdate, joined


def batches(*rows: tuple[int, int, int, int]) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(*row) for row in rows)


@pytest.mark.parametrize(
    ("given", "start", "expected"),
    [
        ([], UNINITIALIZED, []),
        ([(100, 110, 0, 1)], UNINITIALIZED, [(100, 110, 0, 1)]),
        ([(100, 110, 0, 1)], 111, []),
        ([(100, 110, 0, 1)], 105, [(105, 110, 0, 1)]),
        ([(100, 110, 0, 1), (111, 120, 0, 1)], UNINITIALIZED, [(100, 120, 0, 1)]),
        ([(100, 110, 0, 1), (112, 120, 0, 1)], UNINITIALIZED, [(100, 110, 0, 1), (112, 120, 0, 1)]),
        ([(100, 110, 0, 1), (100, 110, 0, 2)], UNINITIALIZED, [(100, 110, 0, 2)]),
        ([(100, 110, 2, 1), (100, 110, 0, 2)], UNINITIALIZED, [(100, 110, 0, 2)]),
        ([(100, 110, 0, 1), (100, 110, 2, 1)], UNINITIALIZED, [(100, 110, 2, 1)]),
        (
            [(100, 120, 0, 1), (105, 110, 2, 1)],
            UNINITIALIZED,
            [(100, 104, 0, 1), (105, 110, 2, 1), (111, 120, 0, 1)],
        ),
        ([(100, 115, 0, 1), (110, 120, 2, 2)], 105, [(105, 109, 0, 1), (110, 120, 2, 2)]),
        ([(110, 120, 4, 5), (100, 109, 0, 1)], UNINITIALIZED, [(100, 109, 0, 1), (110, 120, 4, 5)]),
    ],
)
def test_batches_are_combined_as_in_kafka(
    given: list[tuple[int, int, int, int]], start: int, expected: list[tuple[int, int, int, int]]
) -> None:
    """PersisterStateBatchCombiner: prune below the start, the higher count wins, then the higher state; coalesce."""
    assert combine(batches(*given), start) == batches(*expected)


def test_of_two_times_the_later_one_counts() -> None:
    """H10: a newer release has a higher count; where the count is the same, no record comes before either time."""
    early, late = StateBatch(0, 9, 0, 1, 5_000), StateBatch(5, 14, 0, 1, 9_000)
    both = (StateBatch(0, 4, 0, 1, 5_000), StateBatch(5, 14, 0, 1, 9_000))
    assert combine((early, late), 0) == combine((late, early), 0) == both
    again = StateBatch(0, 14, 0, 2)
    assert combine((again, early, late), 0) == (again,)
    done = StateBatch(0, 14, 2, 1)
    assert combine((early, done, late), 0) == (done,)


def update(start_offset: int, complete: int, *rows: tuple[int, int, int, int]) -> StateUpdate:
    return StateUpdate(7, 3, start_offset, complete, batches(*rows))


def test_updates_joined_are_what_they_are_one_after_the_other() -> None:
    """PersisterStateBatchCombiner: later batches hold over earlier ones, whether they come by one request or by two."""
    accepted = update(0, 1, (5, 5, 2, 1)), update(0, 2, (6, 6, 2, 1)), update(7, 0, (0, 4, 2, 1), (6, 6, 4, 1))
    found = joined(accepted)
    assert (*found[:4], tuple(found.batches)) == update(7, 0, (5, 6, 2, 1), (0, 4, 2, 1), (6, 6, 4, 1))
    apart = [batch for one in accepted for batch in one.batches]
    assert combine(found.batches, UNINITIALIZED) == combine(apart, UNINITIALIZED)


def test_an_update_that_does_not_move_the_start_leaves_what_others_joined_with_it_say() -> None:
    assert joined([update(9, 0), update(UNINITIALIZED, 4)]).start_offset == 9
