"""Whether the pauses of several cores have an instant in common (decision 0068)."""

import pytest

from fencepost.cli.backup.cut import CoreEnds, of_one_instant
from fencepost.protocol.topics import TopicPartition


@pytest.mark.parametrize(
    ("pauses", "is_one"),
    [
        ([(10, 60), (40, 90)], True),
        ([(10, 60), (60, 110)], True),
        ([(10, 60), (61, 111)], False),
        ([(10, 60), (40, 90), (70, 120)], False),
        ([(10, 110), (40, 140), (70, 170)], True),
    ],
)
def test_all_pauses_must_overlap_at_one_instant(pauses: list[tuple[int, int]], is_one: bool) -> None:
    """Two that do, and a third that begins when the first has ended, have none in common."""
    found = of_one_instant([CoreEnds(*pause, {TopicPartition("t", n): n}) for n, pause in enumerate(pauses)])
    assert (found is not None) == is_one
    if found is not None:
        assert found == {TopicPartition("t", n): n for n in range(len(pauses))}
