"""Combining state batches, by rule; `tests/property/test_share_states.py` compares it with a model of each offset."""

import pytest

from fencepost.coordinator.share.batches import combine
from fencepost.coordinator.share.values import UNINITIALIZED, StateBatch


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
